// SPDX-License-Identifier: BSD-3-Clause
// pybind11 writes its TypeError for wrong arguments outside of its own guard: a keyword that cannot
// be encoded would end the process there.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// Puts a slot_guard around each function in a module that pybind11 made, as it made `example`.
void guard_functions(pybind11::handle module, pybind11::handle example);

}  // namespace modtree
