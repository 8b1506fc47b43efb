// SPDX-License-Identifier: BSD-3-Clause
// Classes behind Module in the MRO, as Mixin in `class M(nn.Module, Mixin)`. torch's Module is a
// Python class: what it does not define is theirs, and its __setattr__ and __delattr__ end with
// super(). The native base stands before them, with slots of its own.
#pragma once

#include "module/object.h"

namespace modtree {

// True if one of them has a __setattr__ or __delattr__, which then has the last word on plain
// attributes. Quick to deny by what is remembered of the class.
bool hands_writes_on(PyTypeObject *type);
// The same, by a search: for who finds the facts about a class.
bool has_writes_behind(PyTypeObject *type);

// super(Module, module).__setattr__(name, value), or __delattr__(name) where value is null. -1 on
// error.
int hand_write_on(ModuleObject *module, PyObject *name, PyObject *value);

// Gives the class what one of them has under a name that torch's Module does not define, and the
// native base does. -1 on error.
int bring_forward(PyTypeObject *type);

}  // namespace modtree
