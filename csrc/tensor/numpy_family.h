// SPDX-License-Identifier: BSD-3-Clause
// The family of modtree.Tensor: answers the tree without running Python.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

void init_numpy_family();

// The Python class Parameter, once Tensor is there; the family's Python object, once Parameter is
// there. Throw.
void adopt_parameter_class(const pybind11::object &parameter);
void adopt_numpy_family(const pybind11::object &python_family);

}  // namespace modtree
