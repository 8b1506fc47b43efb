// SPDX-License-Identifier: BSD-3-Clause
// Deep copy of a tree of modules without recursion.
#pragma once

#include "module/object.h"

namespace modtree {

// Whether no Python code of the class or the instance takes part in copying and pickling.
bool inherits_copying(ModuleObject *module);

// May the state be copied without the steps of the copying and pickling protocols? Not when Python
// code takes part, or `__dict__` was handed out.
bool copies_natively(ModuleObject *module);

// What copy.deepcopy makes of a module with this memo: natively where that is the same, or else by
// copy.deepcopy itself. New reference, null on error.
PyObject *deepcopy_tree(PyObject *root, PyObject *memo);

// Is copy.deepcopy, called by deepcopy_tree, to go on without a native method for this module? True
// once.
bool declines_deepcopy(PyObject *module);

// Called once, when the extension is loaded. Throws error_already_set.
void init_deepcopy();

}  // namespace modtree
