// SPDX-License-Identifier: BSD-3-Clause
// Reading `module.name` (BEHAVIOUR 2.A).
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_tp_getattro(PyObject *self_obj, PyObject *name);

// `__getattribute__` of an adopted class: all but the registries, which `__getattr__` has.
PyObject *module_getattribute(PyObject *self_obj, PyObject *name);

// Module.__getattr__(name): the registries only; what `super().__getattr__(name)` reaches.
PyObject *module_getattr(PyObject *self_obj, PyObject *name);

// Uses the native slot for a class whose __getattr__ and __getattribute__ are Module's own. CPython
// gives every class below one with a __getattr__ the slow two-step slot. Called when an instance is
// made, so that later patches of the class still win.
void install_native_getattro(PyTypeObject *type);

// What object.__getattribute__(module, name) does for a Python class: the class and the instance
// dict with the 17 entries, no registries. `name` is a str. Null with AttributeError when the
// attribute is missing.
PyObject *own_attribute(ModuleObject *module, PyObject *name);

// 1 if `hasattr(module, name)` is true, 0 if not, -1 if a getter raises another error than
// AttributeError.
int has_attribute(ModuleObject *module, PyObject *name);

}  // namespace modtree
