// SPDX-License-Identifier: BSD-3-Clause
// Classes behind Module in the MRO, as Mixin in `class M(nn.Module, Mixin)`. torch's Module is a
// Python class: what it does not define is theirs, and its __setattr__ and __delattr__ end with
// super(). The native base precedes them, with slots of its own.
#pragma once

#include "module/class_info.h"
#include "module/object.h"

namespace modtree {

// True if one of them has an attribute of that name. A search, for what is not remembered of the
// class.
bool has_behind(PyTypeObject *type, Virtual method);

// True if one of them has a __setattr__ or __delattr__, which then has the last word on plain
// attributes. Quick to deny by what is remembered of the class.
bool hands_writes_on(PyTypeObject *type);

// super(Module, module).__setattr__(name, value), or __delattr__(name) where value is null. -1 on
// error.
int hand_write_on(ModuleObject *module, PyObject *name, PyObject *value);

// A descriptor for a name that torch's Module does not define: it gives what a class behind Module
// has there, and otherwise what `native`, the descriptor of the native base, gives. Throws
// error_already_set.
py::object handed_method(Virtual method, const py::object &native);

// Puts those of modtree's own Module on `m`.
void make_handed_methods(py::handle m);

}  // namespace modtree
