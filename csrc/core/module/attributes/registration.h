// SPDX-License-Identifier: BSD-3-Clause
// Putting parameters, buffers and children into a module by name (BEHAVIOUR 3.1).
#pragma once

#include "module/object.h"

namespace modtree {

// The register functions with all their checks; -1 on error.
int register_parameter(ModuleObject *module, PyObject *name, PyObject *parameter);
int register_buffer(ModuleObject *module, PyObject *name, PyObject *tensor, bool persistent);
int add_module(ModuleObject *module, PyObject *name, PyObject *child);

// Stores an entry after the registration hooks of its kind have had their say. -1 on error.
int store_with_hooks(ModuleObject *module, Slot slot, PyObject *hooks, PyObject *name,
                     PyObject *value);

}  // namespace modtree
