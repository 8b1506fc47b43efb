// SPDX-License-Identifier: BSD-3-Clause
// Changing the registries of a module, and the set of non-persistent names, whatever containers
// they are.
#pragma once

#include "module/object.h"

namespace modtree {

// The entry, or null when it is empty: 1, 0, -1 on error.
int own_entry(ModuleObject *module, Slot slot, py::object *entry);

// The entry, made when it is empty, or what the class gives for a missing one; kept alive by *keep.
// -1 on error.
int require_entry(ModuleObject *module, Slot slot, PyObject **value, py::object *keep);

// Puts an entry into a registry without any check; -1 on error.
int store_registered(ModuleObject *module, Slot slot, PyObject *name, PyObject *value);

// Mapping access that takes the short way for a plain dict. Discard: 1 removed, 0 was missing, -1
// on error.
int mapping_set(PyObject *mapping, PyObject *name, PyObject *value);
int mapping_discard(PyObject *mapping, PyObject *name);

// The caller owns the set.
int set_add(PyObject *set, PyObject *name);
int set_discard(PyObject *set, PyObject *name);
int discard_non_persistent(ModuleObject *module, PyObject *name);

}  // namespace modtree
