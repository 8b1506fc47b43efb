// SPDX-License-Identifier: BSD-3-Clause
#include "module/class_info.h"

#include <array>
#include <cstring>


namespace modtree {

TypeCache<ClassInfo> class_cache;

namespace {

std::array<PyObject *, kVirtualCount> own_attributes{};  // strong; null until the class is sealed, or when Module has no such attribute

ClassInfo compute(PyTypeObject *type) {
  ClassInfo info;
  for (int i = 0; i < kVirtualCount; ++i) {
    const Virtual method = static_cast<Virtual>(i);
    PyObject *found = type_lookup(type, virtual_name(method));
    if (found != own_attributes[static_cast<std::size_t>(i)]) {
      info.overridden |= std::uint64_t{1} << i;
    }
    if (method == Virtual::forward && found && PyFunction_Check(found)) {
      info.forward = found;
    }
  }
  info.identity_hash = type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  return info;
}

}  // namespace

PyObject *virtual_name(Virtual method) {
  switch (method) {
#define MODTREE_CASE(enumerator, member) \
  case Virtual::enumerator:              \
    return names.member;
    MODTREE_VIRTUALS(MODTREE_CASE)
#undef MODTREE_CASE
    default:
      return nullptr;
  }
}

const ClassInfo *compute_class_info(PyTypeObject *type) { return class_cache.store(type, compute(type)); }

void seal_module_class(PyTypeObject *module_class) {
  for (int i = 0; i < kVirtualCount; ++i) {
    PyObject *found = type_lookup(module_class, virtual_name(static_cast<Virtual>(i)));
    PyObject *old = own_attributes[static_cast<std::size_t>(i)];
    own_attributes[static_cast<std::size_t>(i)] = Py_XNewRef(found);
    Py_XDECREF(old);
  }
  // What was computed before the class was sealed compared with nothing.
  class_cache = TypeCache<ClassInfo>();
}

const char *type_short_name(PyTypeObject *type) {
  const char *dot = std::strrchr(type->tp_name, '.');
  return dot ? dot + 1 : type->tp_name;
}

}  // namespace modtree
