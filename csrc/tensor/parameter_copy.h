// SPDX-License-Identifier: BSD-3-Clause
// Copies of parameters without the Python code that describes them.
#pragma once

#include "tensor/object.h"

namespace modtree {

// Notes what the classes Parameter and Tensor have under the names that decide about copies and
// pickles. Called once, when Parameter is installed. Throws error_already_set.
void seal_parameter_class();

// Are the two classes as they were then? May run user code where a class has keys of odd types in
// its `__dict__`.
bool parameters_are_plain();

// Is it a parameter whose copy and pickle native code may make: of the class itself, which nobody
// has patched, with values, and is no function mode to be told? May run user code, as above.
bool is_plain_parameter(PyObject *value);

// What `Parameter.__deepcopy__` makes of an is_plain_parameter(): new reference. Null without an
// error where only that method knows; null with an error set on failure.
PyObject *copy_plain_parameter(PyObject *parameter);

}  // namespace modtree
