// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/assignment_rollback.h"

#include "python/call.h"

namespace modtree {

namespace {

// The class whose methods read and write such a table past what its own class does, which should
// not see a snapshot. Null for others.
PyObject *base_of_odd_table(PyObject *container) {
  if (!PyDict_Check(container) || is_plain_table(container)) {
    return nullptr;
  }
  return reinterpret_cast<PyObject *>(PyODict_Check(container) ? &PyODict_Type : &PyDict_Type);
}

// New reference, null on error: a copy, or the items of a table of another class.
PyObject *snapshot(PyObject *container) {
  PyObject *base = base_of_odd_table(container);
  if (!base) {
    return PyObject_CallMethod(container, "copy", nullptr);
  }
  const py::object items = call_method(base, "items", container);
  return items ? PySequence_List(items.ptr()) : nullptr;
}

}  // namespace

int AssignmentRollback::save(ModuleObject *module, PyObject *name) {
  const Slot slots[] = {Slot::buffers, Slot::modules, Slot::non_persistent_buffers_set};
  for (int i = 0; i < 3; ++i) {
    const auto keep = py::reinterpret_borrow<py::object>(peek(module, slots[i]));
    PyObject *container = keep.ptr();
    const int held = container ? PySequence_Contains(container, name) : 0;
    if (held < 0) {
      return -1;
    }
    if (held) {
      saved_[i].container = py::reinterpret_borrow<py::object>(container);
      saved_[i].copy = py::reinterpret_steal<py::object>(snapshot(container));
      if (!saved_[i].copy) {
        return -1;
      }
    }
  }
  const SpecialName *special = find_special_name(name);
  if (special && special->slot >= 0 && expose(module) < 0) {
    return -1;
  }
  if (has_instance_attribute(module, name) != 0) {
    saved_[3].container = py::reinterpret_borrow<py::object>(module->dict);
    saved_[3].copy = py::reinterpret_steal<py::object>(PyDict_Copy(saved_[3].container.ptr()));
    return saved_[3].copy ? 0 : -1;
  }
  return 0;
}

void AssignmentRollback::restore() {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  for (Saved &saved : saved_) {
    if (saved.container) {
      put_back(saved);
    }
  }
  PyErr_Restore(type, error, traceback);
}

int AssignmentRollback::put_back_items(PyObject *base, const Saved &saved) {
  if (!call_method(base, "clear", saved.container)) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(saved.copy.ptr()); ++i) {
    PyObject *pair = PyList_GET_ITEM(saved.copy.ptr(), i);
    if (!call_method(base, "__setitem__", saved.container, py::handle(PyTuple_GET_ITEM(pair, 0)),
                     py::handle(PyTuple_GET_ITEM(pair, 1)))) {
      return -1;
    }
  }
  return 0;
}

void AssignmentRollback::put_back(const Saved &saved) {
  if (PyObject *base = base_of_odd_table(saved.container.ptr())) {
    if (put_back_items(base, saved) < 0) {
      PyErr_WriteUnraisable(saved.container.ptr());
    }
    return;
  }
  for (const char *method : {"clear", "update"}) {
    const bool update = method[0] == 'u';
    const auto result = py::reinterpret_steal<py::object>(
        update ? PyObject_CallMethod(saved.container.ptr(), method, "O", saved.copy.ptr())
               : PyObject_CallMethod(saved.container.ptr(), method, nullptr));
    if (!result) {
      PyErr_WriteUnraisable(saved.container.ptr());
      return;
    }
  }
}

}  // namespace modtree
