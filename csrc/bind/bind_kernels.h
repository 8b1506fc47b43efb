// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// Adds the submodule `kernels`: numeric kernels on NumPy arrays, used by the tensor's operations.
void bind_kernels(pybind11::handle module);

}  // namespace modtree
