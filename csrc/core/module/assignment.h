// SPDX-License-Identifier: BSD-3-Clause
// `module.name = value` (BEHAVIOUR 2.B).
#pragma once

#include "module/object.h"

namespace modtree {

// Assigns in torch's decision order. -1 on error; then nothing has changed.
int assign(ModuleObject *module, PyObject *name, PyObject *value);

// Stores a plain attribute as object.__setattr__ would.
int assign_plain(ModuleObject *module, PyObject *name, PyObject *value);

}  // namespace modtree
