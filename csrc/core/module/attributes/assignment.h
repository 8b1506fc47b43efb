// SPDX-License-Identifier: BSD-3-Clause
// `module.name = value` and `del module.name` (BEHAVIOUR 2.B, 2.9).
#pragma once

#include "module/object.h"

namespace modtree {

// Assigns in torch's decision order. -1 on error; then nothing has changed.
int assign(ModuleObject *module, PyObject *name, PyObject *value);

// The slot: assigns, or deletes where `value` is null.
int module_tp_setattro(PyObject *self_obj, PyObject *name, PyObject *value);

}  // namespace modtree
