// SPDX-License-Identifier: BSD-3-Clause
// Modules of another library (torch's) beside ours: they are plain attributes of each other, which
// a warning says.
#pragma once

#include "module/object.h"

namespace modtree {

// `module.name = child` where child is a module of torch; and the other way round, where `parent`
// may be any object. A warning once per class of the other library; -1 when warnings are errors.
int warn_of_foreign_child(ModuleObject *module, PyObject *name, PyObject *child);
int warn_of_foreign_parent(PyObject *parent, PyObject *name, PyObject *child);

}  // namespace modtree
