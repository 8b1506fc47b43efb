// SPDX-License-Identifier: BSD-3-Clause
// Calling a module (BEHAVIOUR 6): dispatch and the path without hooks.
#pragma once

#include "module/object.h"

namespace modtree {

// m(*args, **kwargs): the compiled implementation, an overridden _call_impl, or the native one.
PyObject *module_tp_call(PyObject *self_obj, PyObject *args, PyObject *kwargs);

// The same for arguments in a vector, as the interpreter has them: no tuple is made. Instances of
// classes whose tp_call is not the function above are called through theirs.
PyObject *module_vectorcall(PyObject *self_obj, PyObject *const *args, std::size_t flagged_count,
                            PyObject *names_of_keywords);

// Lets the interpreter call a new module by module_vectorcall.
void take_vectorcall(PyTypeObject *type, ModuleObject *module);

// Module._call_impl(*args, **kwargs).
PyObject *module_call_impl(PyObject *self_obj, PyObject *args, PyObject *kwargs);

}  // namespace modtree
