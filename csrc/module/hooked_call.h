// SPDX-License-Identifier: BSD-3-Clause
// A call of a module that has hooks (BEHAVIOUR 6.C, 6.D).
#pragma once

#include "module/object.h"

namespace modtree {

// Runs the pre-hooks, forward and the forward hooks in torch's order. `kwargs` may be null. New
// reference, null on error.
PyObject *call_with_hooks(PyObject *self_obj, PyObject *args, PyObject *kwargs);

// Calls a plain function of the class, which the caller owns, with self in front, without making a
// bound method.
PyObject *call_unbound(PyObject *function, PyObject *self_obj, PyObject *args, PyObject *kwargs);

// The class's own `forward` when it is a plain function that no instance attribute hides, or null.
py::object plain_forward(ModuleObject *module);

// What a call of the module runs: that function, with *unbound set, or else a bound `forward`, or
// `_slow_forward` while torch.jit.trace is at work. Null on error.
py::object find_forward(ModuleObject *module, bool *unbound);

// Holds the hook table, which may be missing, anything? One that is no dict is asked for its truth,
// and may be replaced meanwhile. -1 on error.
inline int table_has_hooks(PyObject *table) {
  if (!table || PyDict_Check(table)) {
    return table && PyDict_GET_SIZE(table) != 0;
  }
  const auto keep = py::reinterpret_borrow<py::object>(table);
  return PyObject_IsTrue(table);
}

}  // namespace modtree
