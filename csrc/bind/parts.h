// SPDX-License-Identifier: BSD-3-Clause
// The parts of the extension module, which init.cpp puts together.
#pragma once

#include "bind/functions.h"

namespace modtree {

// Gives objects of modtree's Python modules to native code, by the names under which that uses
// them; all of them or, with an error, none. Throws TypeError for a name that it does not use and
// for an object that is not what it uses there, RuntimeError for the family before its classes.
void install(const py::dict &objects);

// Adds the submodule `kernels`: numeric kernels on NumPy arrays, used by the tensor's operations;
// and to the extension module the number of threads that they use.
void bind_kernels(Functions &functions);

// Adds the tensor to the extension module: its type, dtypes, the operation type, the NumPy family.
void bind_tensor(Functions &functions);

// Adds the node type, and what modtree.autograd calls.
void bind_autograd(Functions &functions);

}  // namespace modtree
