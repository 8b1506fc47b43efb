// SPDX-License-Identifier: BSD-3-Clause
#include "module/bases_behind.h"

#include "module/class_info.h"
#include "python/call.h"
#include "python/dict_lookup.h"
#include "python/interned.h"

namespace modtree {

namespace {

// What the first class behind Module has under the name, or null without an error. Only classes
// made by Python code are asked: `object` is behind every module.
py::object found_behind(PyTypeObject *type, PyObject *name) {
  const py::object mro = mro_of(type);
  if (!mro) {
    PyErr_Clear();
    return py::object();
  }
  bool is_behind = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro.ptr()); ++i) {
    auto *base = reinterpret_cast<PyTypeObject *>(PyTuple_GET_ITEM(mro.ptr(), i));
    if (is_behind && PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)) {
      if (PyObject *found = class_dict_get(base, name)) {
        return py::reinterpret_borrow<py::object>(found);
      }
    }
    is_behind = is_behind || base == module_base_type;
  }
  return py::object();
}

}  // namespace

bool hands_writes_on(PyTypeObject *type) {
  // Finding the facts may run code that takes the type from its object, too.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  return class_info(type).overrides(Virtual::setattr) && has_writes_behind(type);
}

bool has_writes_behind(PyTypeObject *type) {
  // Comparing odd keys in the dict of a class may run code that takes the type from its object.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  return found_behind(type, names.setattr) || found_behind(type, names.delattr);
}

int hand_write_on(ModuleObject *module, PyObject *name, PyObject *value) {
  const py::object next = call(reinterpret_cast<PyObject *>(&PySuper_Type),
                               reinterpret_cast<PyObject *>(module_base_type), as_object(module));
  if (!next) {
    return -1;
  }
  const py::object done = value ? call_method(next, "__setattr__", name, value)
                                : call_method(next, "__delattr__", name);
  return done ? 0 : -1;
}

int bring_forward(PyTypeObject *type) {
  for (const Virtual method : {Virtual::getattribute, Virtual::reduce_ex}) {
    const py::object found = found_behind(type, virtual_name(method));
    // A metaclass may refuse attributes: type's own slot.
    if (found && !class_info(type).overrides(method) &&
        PyType_Type.tp_setattro(reinterpret_cast<PyObject *>(type), virtual_name(method),
                                found.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

}  // namespace modtree
