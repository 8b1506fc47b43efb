// SPDX-License-Identifier: BSD-3-Clause
// The register functions as Python methods.
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_register_parameter(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords);
PyObject *module_register_buffer(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords);
PyObject *module_add_module(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);

}  // namespace modtree
