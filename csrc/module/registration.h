// SPDX-License-Identifier: BSD-3-Clause
// Putting parameters, buffers and children into a module: by assignment and by name
// (BEHAVIOUR 2.B, 3.1).
#pragma once

#include "module/object.h"

namespace modtree {

// `module.name = value` in torch's decision order. -1 on error; then nothing has changed.
int assign(ModuleObject *module, PyObject *name, PyObject *value);

// Stores a plain attribute as object.__setattr__ would.
int assign_plain(ModuleObject *module, PyObject *name, PyObject *value);

// The register functions with all their checks; -1 on error.
int register_parameter(ModuleObject *module, PyObject *name, PyObject *parameter);
int register_buffer(ModuleObject *module, PyObject *name, PyObject *tensor, bool persistent);
int add_module(ModuleObject *module, PyObject *name, PyObject *child);

// How error messages call the type of a value: 'torch.FloatTensor', 'collections.OrderedDict',
// 'int'. Throws.
py::str type_name(py::handle value);

}  // namespace modtree
