// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tensor/object.h"

namespace modtree {

// Tensor.backward(gradient=None, retain_graph=None, create_graph=False, inputs=None).
PyObject *tensor_backward(PyObject *self, PyObject *args, PyObject *kwargs);

// The tensors of `inputs` (one, or a sequence) as a tuple; null with an error set.
py::object inputs_tuple(PyObject *inputs);

}  // namespace modtree
