// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/saved_names.h"

#include "python/owned.h"

namespace modtree {

int is_in_non_persistent_set(ModuleObject *module, PyObject *name) {
  PyObject *set;
  Owned keep;
  if (registry(module, Slot::non_persistent_buffers_set, &set, &keep) < 0) {
    return -1;
  }
  if (!set || (PyAnySet_CheckExact(set) && PySet_GET_SIZE(set) == 0)) {
    return 0;
  }
  const Owned held = borrow(set);
  return PySequence_Contains(set, name);
}

int find_saved_buffer(ModuleObject *module, PyObject *name, Owned *buffer) {
  PyObject *buffers = peek(module, Slot::buffers);
  const Owned held = borrow(buffers);
  if (!buffers && PyErr_Occurred()) {
    return -1;
  }
  const int listed = buffers ? PySequence_Contains(buffers, name) : 0;
  if (listed <= 0) {
    return listed;
  }
  Owned found = steal(PyObject_GetItem(buffers, name));
  const int left_out = found ? is_non_persistent(module, name) : -1;
  if (left_out == 0 && !found.is_none()) {
    *buffer = std::move(found);
  }
  return left_out < 0 ? -1 : 0;
}

int has_parameter(ModuleObject *module, PyObject *name) {
  const Owned parameters = borrow(peek(module, Slot::parameters));
  if (!parameters && PyErr_Occurred()) {
    return -1;
  }
  const int listed = parameters ? PySequence_Contains(parameters.ptr(), name) : 0;
  if (listed <= 0) {
    return listed;
  }
  const Owned found = steal(PyObject_GetItem(parameters.ptr(), name));
  return found ? !found.is_none() : -1;
}

int has_entry(ModuleObject *module, PyObject *name) {
  for (const Slot slot : {Slot::parameters, Slot::buffers}) {
    PyObject *mapping;
    Owned keep;
    const int found = registry(module, slot, &mapping, &keep);
    if (found <= 0) {
      if (found < 0) {
        return -1;
      }
      continue;
    }
    const Owned held = borrow(mapping);
    Owned value;
    if (PyDict_Check(mapping)) {
      value = borrow(dict_get(mapping, name));
    } else {
      value = steal(PyObject_GetItem(mapping, name));
    }
    if (!value) {
      if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
          return -1;
        }
        PyErr_Clear();
      }
      continue;
    }
    if (value.is_none()) {
      continue;
    }
    const int left_out = slot == Slot::buffers ? is_non_persistent(module, name) : 0;
    if (left_out <= 0) {
      return left_out < 0 ? -1 : 1;
    }
  }
  return 0;
}

}  // namespace modtree
