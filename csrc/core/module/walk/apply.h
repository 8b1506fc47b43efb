// SPDX-License-Identifier: BSD-3-Clause
// Operations on every module of a tree: apply, _apply, requires_grad_, zero_grad (BEHAVIOUR 5);
// train.h has the modes.
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_apply(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords);
PyObject *module_apply_(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                        PyObject *keywords);
PyObject *module_requires_grad_(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords);
PyObject *module_zero_grad(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords);

}  // namespace modtree
