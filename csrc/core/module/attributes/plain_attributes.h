// SPDX-License-Identifier: BSD-3-Clause
// Attributes past the registries: descriptors of the class, and the instance dict.
#pragma once

#include "module/object.h"

namespace modtree {

// What object.__setattr__(module, name, value) and object.__delattr__(module, name) do for a Python
// class: the class and the instance dict with the 17 entries, no registries. `name` is a str. -1 on
// error.
int assign_plain(ModuleObject *module, PyObject *name, PyObject *value);
int delete_plain(ModuleObject *module, PyObject *name);

// What Module.__setattr__ does with an attribute that no registry takes: the same, or what a class
// behind Module makes of it.
int write_plain(ModuleObject *module, PyObject *name, PyObject *value);

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
