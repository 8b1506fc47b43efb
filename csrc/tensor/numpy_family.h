// SPDX-License-Identifier: BSD-3-Clause
// The family of modtree.Tensor: answers the tree without running Python.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

void init_numpy_family();

// Called once by modtree.families.numpy. Throws.
void register_numpy_family(pybind11::object python_family, pybind11::type parameter);

}  // namespace modtree
