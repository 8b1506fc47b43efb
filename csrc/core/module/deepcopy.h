// SPDX-License-Identifier: BSD-3-Clause
// Deep copy of a tree of modules without recursion.
#pragma once

#include "module/object.h"

namespace modtree {

// Whether no Python code of the class or the instance takes part in copying and pickling.
bool inherits_copying(ModuleObject *module);

// True if the state may be copied without the steps of the copying and pickling protocols: no
// Python code takes part, and `__dict__` was not handed out.
bool copies_natively(ModuleObject *module);

// What copy.deepcopy makes of a module with this memo: natively where that is the same, or else by
// copy.deepcopy itself. New reference, null on error.
PyObject *deepcopy_tree(PyObject *root, PyObject *memo);

// True, once, if copy.deepcopy, called by deepcopy_tree, is to go on without a native method for
// this module.
bool declines_deepcopy(PyObject *module);

// Called once, when the extension is loaded. Throws error_already_set.
void init_deepcopy();

}  // namespace modtree
