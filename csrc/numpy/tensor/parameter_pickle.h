// SPDX-License-Identifier: BSD-3-Clause
// Pickles of parameters: one reduction with the bytes, instead of a parameter of a tensor of an
// array.
#pragma once

#include "tensor/object.h"

namespace modtree {

// Parameter.__reduce_ex__(protocol).
PyObject *tensor_reduce_parameter(PyObject *self, PyObject *protocol);

// Puts `_parameter_of_bytes` on `_C`: what such a pickle calls. Throws error_already_set.
void add_parameter_pickling(py::handle m);

}  // namespace modtree
