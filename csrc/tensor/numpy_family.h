// SPDX-License-Identifier: BSD-3-Clause
// The family of modtree.Tensor: answers the tree without running Python.
#pragma once

#include <pybind11/pybind11.h>

namespace modtree {

void bind_numpy_family(pybind11::module_ &m);

}  // namespace modtree
