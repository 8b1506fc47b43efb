// SPDX-License-Identifier: BSD-3-Clause
// Calling a module (BEHAVIOUR 6): dispatch and the path without hooks.
#pragma once

#include "module/object.h"

namespace modtree {

// m(*args, **kwargs): the compiled implementation, an overridden _call_impl, or the native one.
PyObject *module_tp_call(PyObject *self_obj, PyObject *args, PyObject *kwargs);

// Module._call_impl(*args, **kwargs).
PyObject *module_call_impl(PyObject *self_obj, PyObject *args, PyObject *kwargs);

}  // namespace modtree
