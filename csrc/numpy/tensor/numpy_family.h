// SPDX-License-Identifier: BSD-3-Clause
// The family of modtree.Tensor: answers the tree without running Python.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

void init_numpy_family();

// The Python class Parameter: a subclass of TensorBase, which the caller has checked.
void adopt_parameter_class(PyTypeObject *parameter);

// The family's Python object, once Tensor and Parameter are installed. Throws.
void adopt_numpy_family(const pybind11::object &python_family);

}  // namespace modtree
