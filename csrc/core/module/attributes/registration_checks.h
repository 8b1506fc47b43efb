// SPDX-License-Identifier: BSD-3-Clause
// What may be registered, and the errors for what may not (BEHAVIOUR 2.B, 3.1). Each check gives 0,
// or -1 with an error set; each raise_ gives -1.
#pragma once

#include "module/object.h"

namespace modtree {

class TensorFamily;

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
