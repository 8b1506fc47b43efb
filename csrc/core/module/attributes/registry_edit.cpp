// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/registry_edit.h"

#include "python/call.h"

namespace modtree {

int own_entry(ModuleObject *module, Slot slot, py::object *entry) {
  PyObject *found;
  const int result = registry(module, slot, &found, entry);
  if (result > 0 && !*entry) {
    *entry = py::reinterpret_borrow<py::object>(found);
  }
  return result;
}

int set_add(PyObject *set, PyObject *name) {
  return PySet_CheckExact(set) ? PySet_Add(set, name) : call_method(set, "add", name) ? 0 : -1;
}

int set_discard(PyObject *set, PyObject *name) {
  if (PySet_CheckExact(set)) {
    return PySet_GET_SIZE(set) == 0 ? 0 : PySet_Discard(set, name) < 0 ? -1 : 0;
  }
  return call_method(set, "discard", name) ? 0 : -1;
}

int require_entry(ModuleObject *module, Slot slot, PyObject **value, py::object *keep) {
  if (!has_slot(module, slot)) {
    return missing_entry(module, slot, value, keep);
  }
  *value = require(module, slot);
  *keep = py::reinterpret_borrow<py::object>(*value);
  return *value ? 1 : -1;
}

int store_registered(ModuleObject *module, Slot slot, PyObject *name, PyObject *value) {
  PyObject *mapping;
  py::object keep;
  return require_entry(module, slot, &mapping, &keep) < 0 ? -1 : mapping_set(mapping, name, value);
}

// Comparing names, or the end of the old value, may run code that puts another mapping in the place
// of this one: it is kept alive.
int mapping_set(PyObject *mapping, PyObject *name, PyObject *value) {
  const auto keep = py::reinterpret_borrow<py::object>(mapping);
  return PyDict_CheckExact(mapping) ? PyDict_SetItem(mapping, name, value)
                                    : PyObject_SetItem(mapping, name, value);
}

int mapping_discard(PyObject *mapping, PyObject *name) {
  // dict_contains_str() holds the dict, and finds nothing in one that died meanwhile.
  const bool is_dict = PyDict_CheckExact(mapping);
  if (is_dict) {
    const int known = PyDict_GET_SIZE(mapping) == 0 ? 0 : dict_contains_str(mapping, name);
    if (known <= 0) {
      return known;
    }
  }
  const auto keep = py::reinterpret_borrow<py::object>(mapping);
  if (is_dict) {
    PyObject *old;
    const int found = dict_pop(mapping, name, &old);
    Py_XDECREF(old);
    return found;
  }
  const int found = PySequence_Contains(mapping, name);
  if (found != 1) {
    return found;
  }
  return PyObject_DelItem(mapping, name) < 0 ? -1 : 1;
}

int discard_non_persistent(ModuleObject *module, PyObject *name) {
  py::object set;
  const int found = own_entry(module, Slot::non_persistent_buffers_set, &set);
  return found <= 0 ? found : set_discard(set.ptr(), name);
}

}  // namespace modtree
