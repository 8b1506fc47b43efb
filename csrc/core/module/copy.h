// SPDX-License-Identifier: BSD-3-Clause
// Pickling and copying a module (BEHAVIOUR 1.10-1.14).
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_getstate(PyObject *self_obj, PyObject *);
PyObject *module_setstate(PyObject *self_obj, PyObject *state);
PyObject *module_reduce_ex(PyObject *self_obj, PyObject *protocol);

// A `__deepcopy__` for copy.deepcopy, or null (with an error only when memory ran out). Neither the
// class nor the instance has one for anybody else: code that defines a `__deepcopy__` asks the
// class first, and objects that forward attributes to a module are not modules.
PyObject *native_deepcopy(PyObject *self_obj);

// Called once, when the extension is loaded.
void init_copying();

}  // namespace modtree
