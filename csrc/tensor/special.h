// SPDX-License-Identifier: BSD-3-Clause
// Special functions that NumPy lacks, on arrays.
#pragma once

#include <pybind11/pybind11.h>

namespace modtree {

void bind_special(pybind11::module_ &m);

}  // namespace modtree
