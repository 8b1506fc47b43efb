// SPDX-License-Identifier: BSD-3-Clause
// Putting parameters, buffers and children into a module by name (BEHAVIOUR 3.1).
#pragma once

#include "module/object.h"

namespace modtree {

class TensorFamily;

// The register functions with all their checks; -1 on error.
int register_parameter(ModuleObject *module, PyObject *name, PyObject *parameter);
int register_buffer(ModuleObject *module, PyObject *name, PyObject *tensor, bool persistent);
int add_module(ModuleObject *module, PyObject *name, PyObject *child);

// Stores an entry after the registration hooks of its kind have had their say. -1 on error.
int store_with_hooks(ModuleObject *module, Slot slot, PyObject *hooks, PyObject *name,
                     PyObject *value);

// --- what may be registered, and the errors for what may not (BEHAVIOUR 2.B): each check gives 0,
// or -1 with an error set; each raise_ gives -1

// Checks 2-4 of the table in BEHAVIOUR 3.1; `kind` is "parameter", "buffer" or "module".
int check_own_name(PyObject *name, const char *kind);

// A parameter is a leaf.
int check_leaf(PyObject *name, TensorFamily *family, PyObject *parameter);

// Checks 7 and 8 of register_parameter.
int check_parameter(PyObject *name, PyObject *value);

// 1 when the value may be a buffer: a tensor, or something that looks like one. -1 on error.
int may_be_buffer(PyObject *value);

int raise_already_exists(ModuleObject *module, PyObject *name);
// For a module without its registries, unless looking for one raised. -1.
int raise_uninitialized(const char *message);

int raise_no_name(PyObject *name, const char *kind);

// TypeError for a value that a place cannot take; `format` gets the value's type and the name.
int raise_wrong_value(const char *format, PyObject *value, PyObject *name);

// How error messages call the type of a value: 'torch.FloatTensor', 'collections.OrderedDict',
// 'int'. Throws.
py::str type_name(py::handle value);

}  // namespace modtree
