// SPDX-License-Identifier: BSD-3-Clause
// The attribute protocol of a module: reading, writing, deleting (BEHAVIOUR 2).
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_tp_getattro(PyObject *self_obj, PyObject *name);
int module_tp_setattro(PyObject *self_obj, PyObject *name, PyObject *value);

// `__getattribute__` of an adopted class: all but the registries, which `__getattr__` has.
PyObject *module_getattribute(PyObject *self_obj, PyObject *name);

// Module.__getattr__(name): the registries only; what `super().__getattr__(name)` reaches.
PyObject *module_getattr(PyObject *self_obj, PyObject *name);

// Uses the native slot for a class whose __getattr__ and __getattribute__ are Module's own. CPython
// gives every class below one with a
// __getattr__ the slow two-step slot; called when an instance is made, so that later patches of the
// class still win.
void install_native_getattro(PyTypeObject *type);

// What object.__getattribute__(module, name) and object.__delattr__(module, name) do for a Python
// class: the class and the instance dict with the 17 entries, no registries. `name` is a str.
// Null, or -1, with AttributeError when there is no such attribute.
PyObject *own_attribute(ModuleObject *module, PyObject *name);
int delete_own(ModuleObject *module, PyObject *name);

// Does `hasattr(module, name)` hold? -1 when a getter raises something else than AttributeError.
int has_attribute(ModuleObject *module, PyObject *name);

// The data descriptor to use where the class of a module has `descriptor` under `name`. A plain
// class in front of Module in the bases brings CPython's own `__dict__`, which knows nothing of the
// 17 entries: Module's takes its place.
py::object own_dict_descriptor(py::object descriptor, PyObject *name);

// Sets, or deletes (value null), through a descriptor that has a setter.
int set_through_descriptor(py::object descriptor, ModuleObject *module, PyObject *name,
                           PyObject *value);

// Sets torch's AttributeError for a missing attribute.
void raise_no_attribute(PyObject *self_obj, PyObject *name);

}  // namespace modtree
