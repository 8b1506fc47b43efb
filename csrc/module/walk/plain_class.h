// SPDX-License-Identifier: BSD-3-Clause
// Remembers the class of the modules that a walk meets one after the other.
#pragma once

#include "module/class_info.h"

namespace modtree {

// Asks of modules whether their class compares them by identity and overrides none of the methods.
template <Virtual... methods>
class PlainClass {
public:
  // False as well for what is no module, and for a class that was not met before. Runs no user
  // code.
  bool has(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    const TypeVersion version = type_version(type);
    return (type == type_ && version == version_ && version != 0) || look_at(type, version);
  }

private:
  bool look_at(PyTypeObject *type, TypeVersion version) {
    ClassInfo info;
    if (!class_cache.find(type, &info) || !info.identity_hash() ||
        info.overrides_any<methods...>()) {
      return false;
    }
    type_ = type;
    version_ = version;
    return true;
  }

  PyTypeObject *type_ = nullptr;  // plain when it had this version; only compared
  TypeVersion version_ = 0;
};

}  // namespace modtree
