// SPDX-License-Identifier: BSD-3-Clause
// Puts back what an assignment that failed had removed; torch loses the old entry then.
#pragma once

#include "module/object.h"

namespace modtree {

// Copies of the containers that held the name before the assignment.
class AssignmentRollback {
public:
  int save(ModuleObject *module, PyObject *name);  // -1 on error

  // Keeps the Python error that is set.
  void restore();

private:
  struct Saved {
    py::object container;
    py::object copy;
  };

  static int put_back_items(PyObject *base, const Saved &saved);
  static void put_back(const Saved &saved);

  Saved saved_[4];
};

}  // namespace modtree
