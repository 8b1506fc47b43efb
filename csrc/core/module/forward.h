// SPDX-License-Identifier: BSD-3-Clause
// Which `forward` a call of a module runs (BEHAVIOUR 6.2), and running it.
#pragma once

#include "module/object.h"

namespace modtree {

// What a call of the module runs: the class's own `forward` when it is a plain function that no
// instance attribute hides, with *unbound set, or else a bound `forward`, or `_slow_forward` while
// torch.jit.trace is at work. Null on error.
py::object find_forward(ModuleObject *module, bool *unbound);

// Calls a plain function of the class, which the caller owns, with self in front, without making a
// bound method. `kwargs` may be null.
PyObject *call_unbound(PyObject *function, PyObject *self_obj, PyObject *args, PyObject *kwargs);

}  // namespace modtree
