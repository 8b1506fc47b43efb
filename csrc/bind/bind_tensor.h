// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace modtree {

// Adds the tensor to the extension module: its type, dtypes, the operation type, the NumPy family.
void bind_tensor(pybind11::module_ &m);

// Adds the node type, and what modtree.autograd calls.
void bind_autograd(pybind11::module_ &m);

}  // namespace modtree
