// SPDX-License-Identifier: BSD-3-Clause
#include "module/split/snapshot.h"

#include "python/call.h"
#include "python/checked.h"

namespace modtree {

namespace {

// What a module has under an internal attribute, borrowed or owned by *keep; null: nothing. Runs
// user code where a property of the class hides a registry.
PyObject *held_value(ModuleObject *module, Slot slot, py::object *keep) {
  const bool is_registry =
      slot == Slot::parameters || slot == Slot::buffers || slot == Slot::modules;
  if (!is_registry || !module->state.exposed || !class_hides_registries(module)) {
    return peek(module, slot);
  }
  PyObject *value = nullptr;
  check(registry(module, slot, &value, keep));
  return value;
}

// The contents of a table or set as they are now; None for other objects.
py::object copy_of(PyObject *value) {
  if (PyDict_Check(value) || PyAnySet_Check(value)) {
    py::object copy = call_method(value, "copy");
    if (!copy) {
      fail();
    }
    return copy;
  }
  return py::none();
}

// What was replaced, alive until all has been put back: user code that runs as it dies sees, and
// changes, modules that are complete.
using ReplacedValues = std::vector<py::object>;

py::object saved(PyObject *value) {
  if (!value) {
    return py::none();
  }
  const auto keep = py::reinterpret_borrow<py::object>(value);
  const py::object copy = copy_of(value);
  return owned(PyTuple_Pack(2, keep.ptr(), copy.ptr()));
}

// True if a dict has the very items, in this order.
bool has_items(PyObject *dict, PyObject *items) {
  if (PyDict_GET_SIZE(dict) != PyDict_GET_SIZE(items)) {
    return false;
  }
  Py_ssize_t one = 0, other = 0;
  PyObject *key, *value, *item_key, *item;
  while (dict_next_item(dict, &one, &key, &value) &&
         dict_next_item(items, &other, &item_key, &item)) {
    if (key != item_key || value != item) {
      return false;
    }
  }
  return true;
}

int refill(const py::object &container, const py::object &contents, ReplacedValues *replaced) {
  // The order of an OrderedDict is beside its dict.
  if (PyDict_CheckExact(container.ptr()) && has_items(container.ptr(), contents.ptr())) {
    return 0;
  }
  replaced->push_back(copy_of(container.ptr()));
  return call_method(container, "clear") && call_method(container, "update", contents) ? 0 : -1;
}

// What the module has in the place of a table that it did not have before.
int empty_new(PyObject *value, ModuleObject *module, Slot slot, ReplacedValues *replaced) {
  const auto keep = py::reinterpret_borrow<py::object>(value);
  replaced->push_back(keep);
  if (PyDict_Check(value) || PyAnySet_Check(value)) {
    replaced->push_back(copy_of(value));
    return call_method(keep, "clear") ? 0 : -1;
  }
  const auto fresh = py::reinterpret_steal<py::object>(default_value(slot));
  return fresh ? store_slot(module, slot, fresh.ptr()) : -1;
}

int restore_slot(ModuleObject *module, Slot slot, PyObject *entry, ReplacedValues *replaced) {
  py::object keep;
  PyObject *now = held_value(module, slot, &keep);
  if (entry == Py_None) {
    return now ? empty_new(now, module, slot, replaced) : 0;
  }
  replaced->push_back(py::reinterpret_borrow<py::object>(now));
  const auto value = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(entry, 0));
  const auto contents = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(entry, 1));
  if (now != value.ptr() && store_slot(module, slot, value.ptr()) < 0) {
    return -1;
  }
  return contents.is_none() ? 0 : refill(value, contents, replaced);
}

// True for what saved() gives.
bool is_entry(PyObject *entry) {
  if (entry == Py_None) {
    return true;
  }
  if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 2) {
    return false;
  }
  PyObject *value = PyTuple_GET_ITEM(entry, 0), *contents = PyTuple_GET_ITEM(entry, 1);
  if (PyDict_Check(value)) {
    return PyDict_Check(contents);
  }
  return PyAnySet_Check(value) ? PyAnySet_Check(contents) : contents == Py_None;
}

// True for what take_snapshot() gives for one module.
bool is_snapshot_of_module(PyObject *entries) {
  if (!PyTuple_Check(entries) || PyTuple_GET_SIZE(entries) != kSlotCount + 1) {
    return false;
  }
  for (int i = 0; i <= kSlotCount; ++i) {
    if (!is_entry(PyTuple_GET_ITEM(entries, i))) {
      return false;
    }
  }
  PyObject *attributes = PyTuple_GET_ITEM(entries, kSlotCount);
  return attributes == Py_None || PyDict_Check(PyTuple_GET_ITEM(attributes, 1));
}

bool is_slot_name(PyObject *key) {
  const SpecialName *special = PyUnicode_Check(key) ? find_special_name(key) : nullptr;
  return special && special->slot >= 0;
}

// The plain attributes. In exposed mode the dict has the internal ones too, which are put back on
// their own.
int restore_attributes(ModuleObject *module, PyObject *entry, ReplacedValues *replaced) {
  const auto dict = py::reinterpret_borrow<py::object>(
      entry == Py_None && !module->dict ? nullptr : instance_dict(module));
  if (!dict) {
    return entry == Py_None && !PyErr_Occurred() ? 0 : -1;
  }
  const auto contents = entry == Py_None
                            ? py::reinterpret_steal<py::object>(PyDict_New())
                            : py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(entry, 1));
  if (!contents) {
    return -1;
  }
  if (has_items(dict.ptr(), contents.ptr())) {
    return 0;
  }
  const auto keys = py::reinterpret_steal<py::object>(PyDict_Keys(dict.ptr()));
  auto before = py::reinterpret_steal<py::object>(PyDict_Copy(dict.ptr()));
  if (!keys || !before) {
    return -1;
  }
  replaced->push_back(std::move(before));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.ptr()); ++i) {
    const auto key = py::reinterpret_borrow<py::object>(PyList_GET_ITEM(keys.ptr(), i));
    if (!is_slot_name(key.ptr()) && PyDict_DelItem(dict.ptr(), key.ptr()) < 0) {
      PyErr_Clear();  // the comparison with an odd key has removed it
    }
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (dict_next_item(contents.ptr(), &position, &key, &value)) {
    if (!is_slot_name(key) && PyDict_SetItem(dict.ptr(), key, value) < 0) {
      return -1;
    }
  }
  return 0;
}

PyObject *table_of(ModuleObject *module, bool is_parameter, py::object *keep) {
  return held_value(module, is_parameter ? Slot::parameters : Slot::buffers, keep);
}

}  // namespace

py::object take_snapshot(const std::vector<py::object> &modules) {
  py::object result = owned(PyList_New(0));
  for (const py::object &value : modules) {
    ModuleObject *module = as_module(value.ptr());
    const py::object entries = owned(PyTuple_New(kSlotCount + 1));
    for (int i = 0; i <= kSlotCount; ++i) {
      py::object keep;
      PyObject *held =
          i < kSlotCount ? held_value(module, static_cast<Slot>(i), &keep) : module->dict;
      PyTuple_SET_ITEM(entries.ptr(), i, saved(held).release().ptr());
    }
    check(PyList_Append(result.ptr(), entries.ptr()));
  }
  return result;
}

void restore_snapshot(const std::vector<py::object> &modules, py::handle snapshot) {
  py::object type, error, traceback;
  const auto note = [&](int result) {
    if (result >= 0) {
      return;
    }
    if (type) {
      PyErr_Clear();
      return;
    }
    PyErr_Fetch(&type.ptr(), &error.ptr(), &traceback.ptr());
  };
  // A copy: what dies on the way may run code that changes the list.
  const py::object all = owned(PySequence_Tuple(snapshot.ptr()));
  bool is_known = PyTuple_GET_SIZE(all.ptr()) == static_cast<Py_ssize_t>(modules.size());
  for (Py_ssize_t i = 0; is_known && i < PyTuple_GET_SIZE(all.ptr()); ++i) {
    is_known = is_snapshot_of_module(PyTuple_GET_ITEM(all.ptr(), i));
  }
  if (!is_known) {
    PyErr_SetString(PyExc_TypeError, "expected what snapshot() gave");
    fail();
  }
  ReplacedValues replaced;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    PyObject *entries = PyTuple_GET_ITEM(all.ptr(), static_cast<Py_ssize_t>(i));
    ModuleObject *module = as_module(modules[i].ptr());
    for (int slot = 0; slot < kSlotCount; ++slot) {
      note(restore_slot(module, static_cast<Slot>(slot), PyTuple_GET_ITEM(entries, slot),
                        &replaced));
    }
    note(restore_attributes(module, PyTuple_GET_ITEM(entries, kSlotCount), &replaced));
  }
  replaced.clear();
  if (type) {
    PyErr_Restore(type.release().ptr(), error.release().ptr(), traceback.release().ptr());
    fail();
  }
}

PyObject *own_mark(PyObject *object, PyObject *name, py::object *keep) {
  const Py_ssize_t offset = Py_TYPE(object)->tp_dictoffset;
  if (offset > 0) {
    PyObject *dict = *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(object) + offset);
    return dict ? dict_find_str(dict, name) : nullptr;
  }
  PyObject *found = nullptr;
  if (optional_attr(object, name, &found) < 0) {
    PyErr_Clear();
  }
  *keep = py::reinterpret_steal<py::object>(found);
  return found;
}

namespace {

int copy_marks(PyObject *from, PyObject *to, PyObject *marks) {
  int refused = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marks); ++i) {
    PyObject *name = PyTuple_GET_ITEM(marks, i);
    py::object keep;
    if (PyObject *mark = own_mark(from, name, &keep)) {
      keep = py::reinterpret_borrow<py::object>(mark);
      if (PyObject_SetAttr(to, name, mark) < 0) {
        PyErr_Clear();
        ++refused;
      }
    }
  }
  return refused;
}

}  // namespace

int write_places(const Structure &structure, const std::vector<py::object> &modules,
                 const std::vector<int> &places, const std::vector<PyObject *> &values,
                 PyObject *marks) {
  for (const int index : places) {
    const LeafPlace &place = structure.places[static_cast<std::size_t>(index)];
    ModuleObject *module = as_module(modules[static_cast<std::size_t>(place.module)].ptr());
    py::object keep;
    PyObject *table = table_of(module, place.is_parameter, &keep);
    if (!table || mapping_contains(table, place.name.ptr()) <= 0) {
      if (!PyErr_Occurred()) {
        const py::object path = structure.path_of(place.module);
        PyErr_Format(PyExc_RuntimeError,
                     "%R has no entry %R any more; nothing was written back to the modules",
                     path.ptr(), place.name.ptr());
      }
      fail();
    }
  }
  // Old values die at the end, when all are written: that may run user code.
  std::vector<py::object> old;
  old.reserve(places.size());
  int refused = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const LeafPlace &place = structure.places[static_cast<std::size_t>(places[i])];
    ModuleObject *module = as_module(modules[static_cast<std::size_t>(place.module)].ptr());
    py::object keep;
    const auto table =
        py::reinterpret_borrow<py::object>(table_of(module, place.is_parameter, &keep));
    int result = -1;
    if (table && is_plain_table(table.ptr())) {
      old.push_back(
          py::reinterpret_borrow<py::object>(dict_find_str(table.ptr(), place.name.ptr())));
      if (marks && old.back() && old.back().ptr() != values[i]) {
        refused += copy_marks(old.back().ptr(), values[i], marks);
      }
      result = PyDict_SetItem(table.ptr(), place.name.ptr(), values[i]);
    } else if (table) {
      result = PyObject_SetItem(table.ptr(), place.name.ptr(), values[i]);
    }
    check(result);
  }
  return refused;
}

}  // namespace modtree
