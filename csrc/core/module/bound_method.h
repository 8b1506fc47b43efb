// SPDX-License-Identifier: BSD-3-Clause
// What an instance gives for a native method. Where a Python function on the class represents the
// method, it looks like a bound method of that.
#pragma once

#include "module/adoption.h"

namespace modtree {

// Creates the type; called once. Throws error_already_set.
void make_bound_method_type(py::handle m);

// New reference, null on error. `face`: of the function on the class, or null.
PyObject *new_bound_method(PyObject *native, PyObject *self_obj, Face *face);

}  // namespace modtree
