// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/plain_attributes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "module/adoption.h"
#include "module/attributes/name_facts.h"
#include "module/class_info.h"
#include "module/type.h"

namespace modtree {

namespace {

// The message about a missing attribute, or null, without an error when the names are not short and
// ASCII. hasattr() throws the message away, and would spend most of its time in PyErr_Format.
py::object short_no_attribute(const char *type, PyObject *name) {
  static constexpr char kMiddle[] = "' object has no attribute '";
  static constexpr std::size_t kMiddleSize = sizeof(kMiddle) - 1;
  static constexpr std::size_t kLongest = 100;
  if (!PyUnicode_IS_COMPACT_ASCII(name)) {
    return py::object();
  }
  const std::size_t type_size = std::strlen(type);
  const auto name_size = static_cast<std::size_t>(PyUnicode_GET_LENGTH(name));
  if (type_size > kLongest || name_size > kLongest) {
    return py::object();
  }
  unsigned char seen = 0;
  for (std::size_t i = 0; i < type_size; ++i) {
    seen = static_cast<unsigned char>(seen | type[i]);
  }
  if (seen > 127) {
    return py::object();
  }
  const std::size_t size = type_size + kMiddleSize + name_size + 2;
  auto message =
      py::reinterpret_steal<py::object>(PyUnicode_New(static_cast<Py_ssize_t>(size), 127));
  if (message) {
    auto *end = reinterpret_cast<char *>(PyUnicode_1BYTE_DATA(message.ptr()));
    *end++ = '\'';
    end = std::copy_n(type, type_size, end);
    end = std::copy_n(kMiddle, kMiddleSize, end);
    end = std::copy_n(static_cast<const char *>(PyUnicode_DATA(name)), name_size, end);
    *end = '\'';
  }
  return message;
}

}  // namespace

py::object own_dict_descriptor(py::object descriptor, PyObject *name) {
  if (!Py_IS_TYPE(descriptor.ptr(), &PyGetSetDescr_Type) ||
      PyDescr_TYPE(descriptor.ptr()) == module_base_type ||
      PyUnicode_Compare(name, names.dict) != 0) {
    return descriptor;
  }
  py::object own = type_lookup(module_base_type, names.dict);
  return own ? own : descriptor;
}

int set_through_descriptor(py::object descriptor, ModuleObject *module, PyObject *name,
                           PyObject *value) {
  const py::object used = own_dict_descriptor(std::move(descriptor), name);
  PyTypeObject *before = Py_TYPE(module);
  const int set = Py_TYPE(used.ptr())->tp_descr_set(used.ptr(), as_object(module), value);
  if (Py_TYPE(module) == before) {
    return set;
  }
  // As in tp_new, of a class that need not have made a module.
  const auto type =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(Py_TYPE(module)));
  auto *after = reinterpret_cast<PyTypeObject *>(type.ptr());
  if (face_count) {
    take_native_slots(after);
  }
  const bool exposes = takes_slots_of_object(after) || starts_exposed(after);
  return exposes && expose(module) < 0 ? -1 : set;
}

void raise_no_attribute(PyObject *self_obj, PyObject *name) {
  const char *type = type_short_name(Py_TYPE(self_obj));
  if (const auto message = short_no_attribute(type, name)) {
    PyErr_SetObject(PyExc_AttributeError, message.ptr());
  } else if (!PyErr_Occurred()) {
    PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '%U'", type, name);
  }
}

int write_plain(ModuleObject *module, PyObject *name, PyObject *value) {
  if (is_plain_name(Py_TYPE(module), name)) {
    return store_attribute(module, name, value);
  }
  return hands_writes_on(Py_TYPE(module)) ? hand_write_on(module, name, value)
                                          : assign_plain(module, name, value);
}

int assign_plain(ModuleObject *module, PyObject *name, PyObject *value) {
  if (is_plain_name(Py_TYPE(module), name)) {
    return store_attribute(module, name, value);
  }
  if (py::object descriptor = type_lookup(Py_TYPE(module), name)) {
    if (Py_TYPE(descriptor.ptr())->tp_descr_set) {
      return set_through_descriptor(std::move(descriptor), module, name, value);
    }
  }
  if (const SpecialName *special = find_special_name(name)) {
    if (special->slot >= 0 && has_slot(module, static_cast<Slot>(special->slot))) {
      return store_slot(module, static_cast<Slot>(special->slot), value);
    }
    if (special->slot >= 0 && (PyErr_Occurred() || expose(module) < 0)) {
      return -1;
    }
    store_flag(&module->state.instance_overrides,
               module->state.instance_overrides || special->is_virtual);
  }
  return store_attribute(module, name, value);
}

int delete_plain(ModuleObject *module, PyObject *name) {
  if (py::object descriptor = type_lookup(Py_TYPE(module), name)) {
    if (Py_TYPE(descriptor.ptr())->tp_descr_set) {
      return set_through_descriptor(std::move(descriptor), module, name, nullptr);
    }
  }
  const SpecialName *special = find_special_name(name);
  if (special && special->slot >= 0) {
    const int deleted = delete_slot(module, static_cast<Slot>(special->slot));
    if (deleted == 0) {
      raise_no_attribute(as_object(module), name);
    }
    return deleted == 1 ? 0 : -1;
  }
  const int found = remove_attribute(module, name);
  if (found == 0) {
    raise_no_attribute(as_object(module), name);
  }
  return found == 1 ? 0 : -1;
}

}  // namespace modtree
