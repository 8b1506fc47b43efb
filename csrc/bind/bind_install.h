// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// Gives objects of modtree's Python modules to native code, by the names under which that uses
// them; all of them or, with an error, none. Throws TypeError for a name that it does not use and
// for an object that is not what it uses there, RuntimeError for the family before its classes.
void install(const pybind11::dict &objects);

}  // namespace modtree
