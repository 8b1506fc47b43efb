// SPDX-License-Identifier: BSD-3-Clause
// Deep copy of a tree of modules without recursion.
#pragma once

#include "module/object.h"

namespace modtree {

// Does the class (or instance) define a method of the pickling or copying protocols itself?
bool has_own_copy_protocol(ModuleObject *module);

// May deepcopy_tree copy this module? Not when Python code takes part, or `__dict__` was handed
// out.
bool copies_natively(ModuleObject *module);

// The copy of a module that copies_natively(); `memo` is the dict of copy.deepcopy. New reference,
// null on error.
PyObject *deepcopy_tree(PyObject *root, PyObject *memo);

}  // namespace modtree
