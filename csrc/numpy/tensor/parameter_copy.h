// SPDX-License-Identifier: BSD-3-Clause
// Copies of parameters and buffers without the Python code that describes them.
#pragma once

#include "tensor/object.h"

namespace modtree {

// Notes what the classes Parameter and Tensor have under the names that decide about copies and
// pickles. Called once, when Parameter is installed. Throws error_already_set.
void seal_parameter_class();

// True if the two classes are still as they were then. May run user code where a class has keys of
// odd types in its `__dict__`.
bool parameters_are_plain();

// True for a parameter that native code may copy and pickle: of the class itself, which nobody has
// patched, with values, and while no function mode has to be told. May run user code, as above.
bool is_plain_parameter(PyObject *value);

// What `Parameter.__deepcopy__` makes of an is_plain_parameter(): new reference. Null without an
// error where only that method knows; null with an error set on failure.
PyObject *copy_plain_parameter(PyObject *parameter);

// The array of a tensor that owns its memory and is copied without Python code: of the class Tensor
// itself, which nobody has patched, without a gradient and attributes of its own. New reference;
// null without an error where only `Tensor.__deepcopy__` knows. May run user code, as above.
PyObject *plain_memory(PyObject *tensor);

// What that method makes of such a tensor: new reference, null on error. `memory` is from
// plain_memory(); `*shown` is a view of it and `*copied` one of its copy, for the memo: new
// references, with an error too unless they are null.
PyObject *copy_plain_tensor(PyObject *memory, PyObject **shown, PyObject **copied);

}  // namespace modtree
