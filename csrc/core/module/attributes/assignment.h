// SPDX-License-Identifier: BSD-3-Clause
// `module.name = value` and `del module.name` (BEHAVIOUR 2.B, 2.9).
#pragma once

#include "module/object.h"

namespace modtree {

// Assigns in torch's decision order. -1 on error; then nothing has changed.
int assign(ModuleObject *module, PyObject *name, PyObject *value);

// The slot: assigns, or deletes where `value` is null.
int module_tp_setattro(PyObject *self_obj, PyObject *name, PyObject *value);

// Modules of another library (torch's) beside ours are plain attributes of each other, which a
// warning says. `module.name = child` where child is a module of torch; and the other way round,
// where `parent` may be any object. A warning once per class of the other library; -1 when warnings
// are errors.
int warn_of_foreign_child(ModuleObject *module, PyObject *name, PyObject *child);
int warn_of_foreign_parent(PyObject *parent, PyObject *name, PyObject *child);

}  // namespace modtree
