// SPDX-License-Identifier: BSD-3-Clause
// Pickling and copying a module (BEHAVIOUR 1.10-1.14).
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_getstate(PyObject *self_obj, PyObject *);
PyObject *module_setstate(PyObject *self_obj, PyObject *state);
PyObject *module_reduce_ex(PyObject *self_obj, PyObject *protocol);
PyObject *module_copy(PyObject *self_obj, PyObject *);
PyObject *module_deepcopy(PyObject *self_obj, PyObject *memo);

}  // namespace modtree
