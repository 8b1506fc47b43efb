// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/registry_items.h"

#include "python/call.h"

namespace modtree {

int RegistryItems::start_iterator(PyObject *mapping, AskFor ask_for) {
  const char *method = ask_for == AskFor::items ? "items" : "values";
  const auto items =
      py::reinterpret_steal<py::object>(PyObject_CallMethod(mapping, method, nullptr));
  asked_for_ = ask_for;
  items_ = items ? PyObject_GetIter(items.ptr()) : nullptr;
  return items_ ? 0 : -1;
}

int RegistryItems::next_of_iterator(PyObject **key, PyObject **value) {
  PyObject *pair = next_of_nested(items_);
  Py_XSETREF(pair_, pair);
  if (!pair) {
    return PyErr_Occurred() ? -1 : 0;
  }
  if (asked_for_ == AskFor::values) {
    *key = nullptr;
    *value = pair;
    return 1;
  }
  if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
    PyErr_SetString(PyExc_TypeError, "a registry's items() must give (name, value) pairs");
    return -1;
  }
  *key = PyTuple_GET_ITEM(pair, 0);
  *value = PyTuple_GET_ITEM(pair, 1);
  return 1;
}

int RegistryItems::raise_changed_size() {
  size_ = -1;  // the loop stays broken, as a dict iterator does
  PyErr_SetString(PyExc_RuntimeError, "dictionary changed size during iteration");
  return -1;
}

int RegistryItems::raise_changed_keys() {
  size_ = -1;
  PyErr_SetString(PyExc_RuntimeError, "dictionary keys changed during iteration");
  return -1;
}

}  // namespace modtree
