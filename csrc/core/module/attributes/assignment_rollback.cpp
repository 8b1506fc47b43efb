// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/assignment_rollback.h"

#include "module/attributes/registry_edit.h"
#include "python/call.h"

namespace modtree {

namespace {

constexpr Slot kRegistries[] = {Slot::parameters, Slot::buffers, Slot::modules};

// Borrowed; null where there is none. The last table is the instance dict.
PyObject *table_at(ModuleObject *module, int index) {
  return index < 3 ? peek(module, kRegistries[index]) : module->dict;
}

// A table that is a dict is read and written as one, past the methods of its own class.
py::object keys_of(PyObject *table) {
  if (!PyODict_Check(table)) {
    return py::reinterpret_steal<py::object>(PyDict_Keys(table));
  }
  const py::object keys = call_method(reinterpret_cast<PyObject *>(&PyODict_Type), "keys", table);
  return py::reinterpret_steal<py::object>(keys ? PySequence_List(keys.ptr()) : nullptr);
}

int set_item(PyObject *table, PyObject *key, PyObject *value) {
  return PyODict_Check(table)  ? PyODict_SetItem(table, key, value)
         : PyDict_Check(table) ? PyDict_SetItem(table, key, value)
                               : PyObject_SetItem(table, key, value);
}

int delete_item(PyObject *table, PyObject *key) {
  return PyODict_Check(table)  ? PyODict_DelItem(table, key)
         : PyDict_Check(table) ? PyDict_DelItem(table, key)
                               : PyObject_DelItem(table, key);
}

// 1 and the value, 0 without, -1 on error.
int find_item(PyObject *table, PyObject *key, py::object *value) {
  const int found = PyDict_Check(table) ? 1 : PySequence_Contains(table, key);
  if (found > 0) {
    *value = PyDict_Check(table) ? py::reinterpret_borrow<py::object>(dict_get(table, key))
                                 : py::reinterpret_steal<py::object>(PyObject_GetItem(table, key));
  }
  return found < 0 || PyErr_Occurred() ? -1 : value->ptr() != nullptr;
}

int move_to_end(PyObject *table, PyObject *key) {
  if (PyODict_Check(table)) {
    return call_method(reinterpret_cast<PyObject *>(&PyODict_Type), "move_to_end", table, key) ? 0
                                                                                               : -1;
  }
  py::object value;
  const int found = find_item(table, key, &value);
  return found <= 0
             ? found
             : (PyDict_DelItem(table, key) < 0 ? -1 : PyDict_SetItem(table, key, value.ptr()));
}

bool has_object(const py::object &list, PyObject *object) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.ptr()); ++i) {
    if (PyList_GET_ITEM(list.ptr(), i) == object) {
      return true;
    }
  }
  return false;
}

// The internal attributes come before all others. They were elsewhere in compact mode.
bool is_internal(PyObject *key) {
  const SpecialName *special = PyUnicode_CheckExact(key) ? find_special_name(key) : nullptr;
  return special && special->slot >= 0;
}

// Moves an entry that is the last one behind those that were in front of it, and so before those
// that were behind it or are new.
int move_back(PyObject *table, const py::object &in_front) {
  const py::object keys = keys_of(table);
  if (!keys) {
    return -1;
  }
  Py_ssize_t place = PyList_GET_SIZE(keys.ptr());
  const auto key_at = [&](Py_ssize_t i) { return PyList_GET_ITEM(keys.ptr(), i); };
  while (place > 0 && !has_object(in_front, key_at(place - 1)) && !is_internal(key_at(place - 1))) {
    --place;
  }
  for (; place + 1 < PyList_GET_SIZE(keys.ptr()); ++place) {
    if (move_to_end(table, key_at(place)) < 0) {
      return -1;
    }
  }
  return 0;
}

int list_again(ModuleObject *module, PyObject *name, bool was_listed) {
  if (module->state.exposed && !peek(module, Slot::non_persistent_buffers_set)) {
    return PyErr_Occurred() ? -1 : 0;  // the code that refused has taken the set away
  }
  if (!was_listed) {
    return discard_non_persistent(module, name);
  }
  PyObject *set;
  py::object keep;
  return require_entry(module, Slot::non_persistent_buffers_set, &set, &keep) < 0
             ? -1
             : set_add(set, name);
}

}  // namespace

int AssignmentRollback::save_entry(PyObject *table, PyObject *name, Entry *entry) {
  const auto keep = py::reinterpret_borrow<py::object>(table);
  const int found = table ? find_item(table, name, &entry->value) : PyErr_Occurred() ? -1 : 0;
  if (found <= 0 || !PyDict_Check(table)) {
    return found < 0 ? -1 : 0;
  }
  entry->in_front = keys_of(table);
  if (!entry->in_front) {
    return -1;
  }
  Py_ssize_t place = 0;
  for (int same = 0; place < PyList_GET_SIZE(entry->in_front.ptr()); ++place) {
    const auto key =
        py::reinterpret_borrow<py::object>(PyList_GET_ITEM(entry->in_front.ptr(), place));
    same = PyObject_RichCompareBool(key.ptr(), name, Py_EQ);
    if (same != 0) {
      break;
    }
  }
  return PyErr_Occurred() ? -1
                          : PyList_SetSlice(entry->in_front.ptr(), place,
                                            PyList_GET_SIZE(entry->in_front.ptr()), nullptr);
}

int AssignmentRollback::save(ModuleObject *module, PyObject *name) {
  const SpecialName *special = find_special_name(name);
  if (special && special->slot >= 0 && expose(module) < 0) {
    return -1;
  }
  for (int i = 0; i < kTables; ++i) {
    if (save_entry(table_at(module, i), name, &entries_[i]) < 0) {
      return -1;
    }
  }
  const auto set =
      py::reinterpret_borrow<py::object>(peek(module, Slot::non_persistent_buffers_set));
  was_listed_ = set ? PySequence_Contains(set.ptr(), name) : PyErr_Occurred() ? -1 : 0;
  return was_listed_ < 0 ? -1 : 0;
}

int AssignmentRollback::put_back(PyObject *table, PyObject *name, const Entry &entry) {
  py::object now;
  if (find_item(table, name, &now) < 0) {
    return -1;
  }
  if (now.is(entry.value)) {
    return 0;
  }
  if (now && delete_item(table, name) < 0) {
    return -1;
  }
  if (!entry.value) {
    return 0;
  }
  return set_item(table, name, entry.value.ptr()) < 0 ? -1
         : entry.in_front                             ? move_back(table, entry.in_front)
                                                      : 0;
}

void AssignmentRollback::restore(ModuleObject *module, PyObject *name) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  // The tables that are there now; the instance dict first, which may hold the others.
  for (int i = kTables - 1; i >= 0; --i) {
    const auto table = py::reinterpret_borrow<py::object>(table_at(module, i));
    if (table ? put_back(table.ptr(), name, entries_[i]) < 0 : PyErr_Occurred() != nullptr) {
      PyErr_WriteUnraisable(as_object(module));
    }
  }
  if (list_again(module, name, was_listed_ != 0) < 0) {
    PyErr_WriteUnraisable(as_object(module));
  }
  PyErr_Restore(type, error, traceback);
}

}  // namespace modtree
