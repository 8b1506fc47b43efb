// SPDX-License-Identifier: BSD-3-Clause
// What an instance gives for a method whose Python function on the class stands for a native one:
// it runs the native method and looks like a bound method of the function.
#pragma once

#include "module/adoption.h"

namespace modtree {

// Creates the type; called once. Throws error_already_set.
void make_bound_method_type(py::handle m);

// New reference, null on error.
PyObject *new_bound_method(Face *face, PyObject *self_obj);

}  // namespace modtree
