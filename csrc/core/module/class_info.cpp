// SPDX-License-Identifier: BSD-3-Clause
#include "module/class_info.h"

#include <array>
#include <cstring>
#include <utility>

#include "module/attributes/plain_attributes.h"
#include "module/bases_behind.h"
#include "module/type.h"

namespace modtree {

namespace {

// Strong; null until the class is sealed, or when Module has no such attribute.
using OwnAttributes = std::array<PyObject *, kVirtualCount>;
OwnAttributes own_attributes{};
OwnAttributes adopted_attributes{};  // of the class that was adopted

// The two classes, strong, or null.
PyTypeObject *own_class = nullptr;
PyTypeObject *adopted_class = nullptr;

void seal(OwnAttributes &attributes, PyTypeObject **sealed, PyTypeObject *module_class) {
  Py_INCREF(module_class);
  Py_XDECREF(std::exchange(*sealed, module_class));
  for (int i = 0; i < kVirtualCount; ++i) {
    py::object found = type_lookup(module_class, virtual_name(static_cast<Virtual>(i)));
    PyObject *old = attributes[static_cast<std::size_t>(i)];
    attributes[static_cast<std::size_t>(i)] = found.release().ptr();
    Py_XDECREF(old);
  }
  // What was computed before the class was sealed compared with nothing.
  class_cache.clear();
}

bool keeps_all_slots(PyTypeObject *type) {
  for (int i = 0; i < kSlotCount; ++i) {
    const py::object found = type_lookup(type, slot_name(static_cast<Slot>(i)));
    if (found && Py_TYPE(found.ptr())->tp_descr_set) {
      return false;
    }
  }
  return true;
}

bool has_modules_dict(PyTypeObject *type) {
  const py::object dict = type_lookup(type, names.dict);
  return dict &&
         own_dict_descriptor(dict, names.dict).is(type_lookup(module_base_type, names.dict));
}

}  // namespace

ClassInfo ClassInfo::compute(PyTypeObject *type) {
  ClassInfo info;
  info.bits_ = kModule;
  for (int i = 0; i < kVirtualCount; ++i) {
    const auto found = type_lookup(type, virtual_name(static_cast<Virtual>(i)));
    const auto index = static_cast<std::size_t>(i);
    const auto method = static_cast<Virtual>(i);
    // torch asks of these two whether the class has what Module has, patched or not.
    const bool is_extra_state =
        method == Virtual::get_extra_state || method == Virtual::set_extra_state;
    if (found.ptr() != own_attributes[index] && found.ptr() != adopted_attributes[index] &&
        !(is_extra_state && is_of_module_class(found.ptr(), method))) {
      info.bits_ |= bit_of(method);
    }
  }
  for (const Virtual method : {Virtual::getattribute, Virtual::reduce_ex}) {
    if (has_behind(type, method)) {
      info.bits_ |= bit_of(method);
    }
  }
  if (has_behind(type, Virtual::setattr) || has_behind(type, Virtual::delattr)) {
    info.bits_ |= bit_of(Virtual::setattr) | bit_of(Virtual::delattr);
  } else if (keeps_all_slots(type)) {
    info.bits_ |= kKeepsSlots;
  }
  if (has_modules_dict(type)) {
    info.bits_ |= kInheritsDict;
  }
  const bool overrides_copying =
      info.overrides_any<Virtual::getstate, Virtual::setstate, Virtual::reduce, Virtual::reduce_ex,
                         Virtual::copy, Virtual::deepcopy, Virtual::getnewargs,
                         Virtual::getnewargs_ex, Virtual::getattr, Virtual::getattribute>();
  if (!overrides_copying && info.inherits_dict() && type->tp_new == module_tp_new) {
    info.bits_ |= kInheritsCopying;
  }
  if (type->tp_hash == PyBaseObject_Type.tp_hash &&
      type->tp_richcompare == PyBaseObject_Type.tp_richcompare) {
    info.bits_ |= kIdentityHash;
  }
  // Last, as it is borrowed: a lookup may run user code.
  const auto forward = type_lookup(type, names.forward);
  if (forward && PyFunction_Check(forward.ptr())) {
    leave_to_collector(forward.ptr());
    info.forward_ = forward.ptr();
  }
  return info;
}

PyObject *virtual_name(Virtual method) {
  switch (method) {
#define MODTREE_CASE(enumerator, member)                                                           \
  case Virtual::enumerator:                                                                        \
    return names.member;
    MODTREE_VIRTUALS(MODTREE_CASE)
#undef MODTREE_CASE
    default:
      return nullptr;
  }
}

ClassInfo compute_class_info(PyTypeObject *type) {
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  // A lookup makes CPython give the class a version tag. It is read before the rest: what changes
  // the class in the meantime gives it another one.
  type_lookup(type, names.forward);
  const TypeVersion version = type_version(type);
  const ClassInfo info = ClassInfo::compute(type);
  class_cache.store(type, version, info);
  return info;
}

bool instance_dict_overrides(ModuleObject *module, Virtual method) {
  return has_instance_attribute(module, virtual_name(method)) != 0;
}

bool is_of_module_class(PyObject *attribute, Virtual method) {
  for (PyTypeObject *module_class : {own_class, adopted_class}) {
    if (module_class && type_lookup(module_class, virtual_name(method)).ptr() == attribute) {
      return true;
    }
  }
  return false;
}

PyTypeObject *module_class_of(PyTypeObject *type) {
  return own_class && PyType_IsSubtype(type, own_class) ? own_class : module_base_type;
}

void seal_module_class(PyTypeObject *module_class) {
  seal(own_attributes, &own_class, module_class);
}

void seal_adopted_class(PyTypeObject *module_class) {
  seal(adopted_attributes, &adopted_class, module_class);
}

const char *type_short_name(PyTypeObject *type) {
  const char *dot = std::strrchr(type->tp_name, '.');
  return dot ? dot + 1 : type->tp_name;
}

}  // namespace modtree
