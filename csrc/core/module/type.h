// SPDX-License-Identifier: BSD-3-Clause
// The heap type `_C.ModuleBase`: its slot table.
#pragma once

#include "module/object.h"

namespace modtree {

// Creates the type and publishes it in `_C`.
void make_module_type(py::handle m);

// A module before Module.__init__: what cls.__new__(cls) gives.
PyObject *module_tp_new(PyTypeObject *type, PyObject *args, PyObject *keywords);

}  // namespace modtree
