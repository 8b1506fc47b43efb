// SPDX-License-Identifier: BSD-3-Clause
// The heap type `_C.ModuleBase`: its slot table.
#pragma once

#include "module/object.h"

namespace modtree {

// Creates the type and publishes it in `_C`.
void make_module_type(py::handle m);

// True if the class has taken `__setattr__ = object.__setattr__`, or object's __getattribute__.
// CPython then writes or reads the instance dict directly.
bool takes_slots_of_object(PyTypeObject *type);

// A module before Module.__init__: what cls.__new__(cls) gives.
PyObject *module_tp_new(PyTypeObject *type, PyObject *args, PyObject *keywords);

}  // namespace modtree
