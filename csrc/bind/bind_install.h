// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// Gives objects of modtree's Python modules to native code, by the names under which that uses
// them. Throws TypeError for a name that it does not use, and for a class that cannot be what it is
// to be.
void install(const pybind11::dict &objects);

}  // namespace modtree
