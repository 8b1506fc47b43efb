// SPDX-License-Identifier: BSD-3-Clause
// Puts back what an assignment that failed had removed; torch loses the old entry then.
#pragma once

#include "module/object.h"

namespace modtree {

// What a module has under one name, wherever that is. What code of a class or a hook did under
// other names before the assignment failed stays.
class AssignmentRollback {
public:
  int save(ModuleObject *module, PyObject *name);  // -1 on error

  // Keeps the Python error that is set. The module and the name are those of save().
  void restore(ModuleObject *module, PyObject *name);

private:
  // An entry of a table: null where there is none.
  struct Entry {
    py::object value;
    py::object in_front;  // a list of the keys before it
  };
  static constexpr int kTables = 4;  // parameters, buffers, modules, the instance dict

  static int save_entry(PyObject *table, PyObject *name, Entry *entry);
  static int put_back(PyObject *table, PyObject *name, const Entry &entry);

  Entry entries_[kTables];
  int was_listed_ = 0;  // among the non-persistent buffers
};

}  // namespace modtree
