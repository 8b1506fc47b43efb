// SPDX-License-Identifier: BSD-3-Clause
#include "python/dict_lookup.h"

namespace modtree {

#if MODTREE_KNOWS_DICT_TABLES

namespace {

namespace py = pybind11;

// Looking up a name of each of the numbers below `count` gives what CPython finds.
bool agrees(const py::object &dict, int count) {
  for (int number = 0; number < count; ++number) {
    const auto key = py::reinterpret_steal<py::object>(PyUnicode_FromFormat("name%d", number));
    if (!key || PyObject_Hash(key.ptr()) == -1) {
      throw py::error_already_set();
    }
    // Equal keys are other objects, so that only a place without one is a sure answer.
    PyObject *expected = PyDict_GetItemWithError(dict.ptr(), key.ptr());
    PyObject *value = nullptr;
    const Lookup looked_up = look_up_str(dict.ptr(), key.ptr(), &value);
    if (looked_up == Lookup::found || (looked_up == Lookup::missing && expected)) {
      return false;
    }
  }
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(dict.ptr(), &position, &key, &value);) {
    PyObject *found = nullptr;
    const Lookup looked_up = look_up_str(dict.ptr(), key, &found);
    if (looked_up == Lookup::missing || (looked_up == Lookup::found && found != value)) {
      return false;
    }
  }
  return true;
}

// Entries are added one by one, every third is deleted again.
bool tables_are_known() {
  constexpr int kNames = 60;  // the largest table has 128 places
  const auto dict = py::reinterpret_steal<py::object>(PyDict_New());
  if (!dict) {
    throw py::error_already_set();
  }
  for (int number = 0; number < kNames; ++number) {
    const auto key = py::reinterpret_steal<py::object>(PyUnicode_FromFormat("name%d", number));
    if (!key || PyDict_SetItem(dict.ptr(), key.ptr(), key.ptr()) < 0 ||
        (number % 3 == 0 && PyDict_DelItem(dict.ptr(), key.ptr()) < 0)) {
      throw py::error_already_set();
    }
    if (!agrees(dict, kNames)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void init_dict_lookup() { dict_tables_are_known = tables_are_known(); }

#else

void init_dict_lookup() {}

#endif

}  // namespace modtree
