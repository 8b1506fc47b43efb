// SPDX-License-Identifier: BSD-3-Clause
// Special functions that NumPy lacks, on arrays.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

void add_special_functions(pybind11::handle m);

}  // namespace modtree
