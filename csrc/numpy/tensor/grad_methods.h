// SPDX-License-Identifier: BSD-3-Clause
// The methods and attributes of a tensor that are about gradients; tensor/methods.cpp lists them.
#pragma once

#include "tensor/object.h"

namespace modtree {

PyObject *get_requires_grad(PyObject *self, void *);
int put_requires_grad(PyObject *self, PyObject *value, void *);
PyObject *get_is_leaf(PyObject *self, void *);
PyObject *get_grad(PyObject *self, void *);
int put_grad(PyObject *self, PyObject *value, void *);
PyObject *get_grad_fn(PyObject *self, void *);
PyObject *get_output_nr(PyObject *self, void *);
PyObject *get_retains_grad(PyObject *self, void *);
PyObject *get_base(PyObject *self, void *);
PyObject *tensor_retain_grad(PyObject *self, PyObject *);
PyObject *tensor_is_view(PyObject *self, PyObject *);
PyObject *tensor_hook_table(PyObject *self, PyObject *);
PyObject *tensor_post_accumulate_table(PyObject *self, PyObject *);

}  // namespace modtree
