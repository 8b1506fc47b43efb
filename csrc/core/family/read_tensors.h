// SPDX-License-Identifier: BSD-3-Clause
// The memory of many tensors at once, for code that writes or compares bytes.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// A list of (dtype name, shape, address, nbytes, is_contiguous), with None for anything but a
// tensor in main memory that native code can read. Throws error_already_set.
pybind11::object read_tensors(pybind11::handle tensors);

}  // namespace modtree
