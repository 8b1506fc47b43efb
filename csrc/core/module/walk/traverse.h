// SPDX-License-Identifier: BSD-3-Clause
// The eight walks of a module (BEHAVIOUR 4): the methods; walk.h has the iterator.
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_parameters(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);
PyObject *module_named_parameters(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords);
PyObject *module_buffers(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords);
PyObject *module_named_buffers(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords);
PyObject *module_children(PyObject *self_obj, PyObject *);
PyObject *module_named_children(PyObject *self_obj, PyObject *);
PyObject *module_modules(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords);
PyObject *module_named_modules(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords);
PyObject *module_named_members(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords);

}  // namespace modtree
