// SPDX-License-Identifier: BSD-3-Clause
#include "python/dict_lookup.h"

#include "python/internals.h"

namespace modtree {

namespace {

namespace py = pybind11;

// Nothing that an object has is overlooked, be it set before or after its dict was asked for. The
// object is larger than a bare one, as tensors are.
bool finds_own_attributes() {
  const auto type = py::reinterpret_steal<py::object>(
      PyObject_CallFunction(reinterpret_cast<PyObject *>(&PyType_Type), "s(){s(ss)}", "Keeper",
                            "__slots__", "first", "__dict__"));
  own_dicts_are_known = true;
  bool good = true;
  for (int turn = 0; good && turn < 4; ++turn) {
    const auto object =
        py::reinterpret_steal<py::object>(type ? PyObject_CallNoArgs(type.ptr()) : nullptr);
    const auto name = py::reinterpret_steal<py::object>(PyUnicode_FromFormat("name%d", turn));
    if (!object || !name || (turn % 2 && !py::hasattr(object, "__dict__")) ||
        PyObject_SetAttr(object.ptr(), name.ptr(), Py_None) < 0) {
      throw py::error_already_set();
    }
    good = !lacks_own_attribute(object.ptr(), name.ptr());
  }
  return good;
}

}  // namespace

#if MODTREE_KNOWS_DICT_TABLES

namespace {

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

// A loop gives the items that CPython's gives, in its order.
bool loops_agree(const py::object &dict) {
  Py_ssize_t count, position = 0, expected_position = 0;
  const DictEntry *entries = entries_of(dict.ptr(), &count);
  if (!entries) {
    return true;  // left to CPython
  }
  PyObject *key, *value;
  while (PyDict_Next(dict.ptr(), &expected_position, &key, &value)) {
    while (position < count && !entries[position].value) {
      ++position;
    }
    if (position + 1 != expected_position || position >= count || entries[position].key != key ||
        entries[position].value != value) {
      return false;
    }
    ++position;
  }
  while (position < count && !entries[position].value) {
    ++position;
  }
  return position == count;
}

// A table with wider indices.
bool large_table_is_known() {
  const auto dict = py::reinterpret_steal<py::object>(PyDict_New());
  for (int number = 0; dict && number < 300; ++number) {
    const auto key = py::reinterpret_steal<py::object>(PyUnicode_FromFormat("name%d", number));
    if (!key || PyDict_SetItem(dict.ptr(), key.ptr(), key.ptr()) < 0) {
      throw py::error_already_set();
    }
  }
  if (!dict) {
    throw py::error_already_set();
  }
  return loops_agree(dict);
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
    if (!agrees(dict, kNames) || !loops_agree(dict)) {
      return false;
    }
  }
  return large_table_is_known();
}

}  // namespace

DictItem dict_item_by_call(PyObject *dict, Py_ssize_t position) {
  PyObject *key = nullptr, *value = nullptr;
  PyDict_Next(dict, &position, &key, &value);
  return {position, key, value};
}

void init_dict_lookup() {
  dict_tables_are_known = may_know_internals("dict_tables") && tables_are_known();
  own_dicts_are_known = finds_own_attributes();
}

#else

void init_dict_lookup() { own_dicts_are_known = finds_own_attributes(); }

#endif

}  // namespace modtree
