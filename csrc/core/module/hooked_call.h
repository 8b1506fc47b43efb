// SPDX-License-Identifier: BSD-3-Clause
// A call of a module that has hooks (BEHAVIOUR 6.C, 6.D).
#pragma once

#include "module/object.h"

namespace modtree {

// Runs the pre-hooks, forward and the forward hooks in torch's order. `kwargs` may be null. New
// reference, null on error.
PyObject *call_with_hooks(PyObject *self_obj, PyObject *args, PyObject *kwargs);

// 1 if the hook table, which may be missing, holds anything; -1 on error. A table that is not plain
// is asked for its truth, and may be replaced meanwhile.
inline int table_has_hooks(PyObject *table) {
  if (!table || is_plain_table(table)) {
    return table && PyDict_GET_SIZE(table) != 0;
  }
  const auto keep = py::reinterpret_borrow<py::object>(table);
  return PyObject_IsTrue(table);
}

}  // namespace modtree
