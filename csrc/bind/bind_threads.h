// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace modtree {

// Adds the number of threads that kernels use.
void bind_threads(pybind11::module_ &m);

}  // namespace modtree
