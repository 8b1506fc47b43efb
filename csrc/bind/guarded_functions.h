// SPDX-License-Identifier: BSD-3-Clause
// pybind11 writes its TypeError for wrong arguments outside of its own guard: a keyword that cannot
// be encoded would end the process there.
#pragma once

#include <pybind11/pybind11.h>

namespace modtree {

// Puts a slot_guard around a function that pybind11 made; anything else is left alone.
void guard_function(pybind11::handle function);

// The same for each function in a module.
void guard_functions(pybind11::module_ module);

}  // namespace modtree
