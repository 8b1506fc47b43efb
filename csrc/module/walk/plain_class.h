// SPDX-License-Identifier: BSD-3-Clause
// Remembers the classes of the modules that a walk meets.
#pragma once

#include <array>

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
    const Entry &entry = entries_[index(type)];
    return (entry.type == type && entry.version == version && version != 0) ||
           look_at(type, version);
  }

private:
  // A class that was plain when it had this version; only compared.
  struct Entry {
    PyTypeObject *type = nullptr;
    TypeVersion version = 0;
  };
  static constexpr std::size_t kSize = 8;  // few, and the blocks of a net repeat them

  static std::size_t index(PyTypeObject *type) {
    const auto bits = reinterpret_cast<std::uintptr_t>(type);
    return ((bits >> 4) ^ (bits >> 10)) & (kSize - 1);
  }

  bool look_at(PyTypeObject *type, TypeVersion version) {
    ClassInfo info;
    if (!class_cache.find(type, &info) || !info.identity_hash() ||
        info.overrides_any<methods...>()) {
      return false;
    }
    entries_[index(type)] = {type, version};
    return true;
  }

  std::array<Entry, kSize> entries_{};
};

}  // namespace modtree
