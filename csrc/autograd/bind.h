// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tensor/object.h"

namespace modtree {

// Tensor.backward(gradient=None, retain_graph=None, create_graph=False, inputs=None).
PyObject *tensor_backward(PyObject *self, PyObject *args, PyObject *kwargs);

void bind_autograd(py::module_ &m);

}  // namespace modtree
