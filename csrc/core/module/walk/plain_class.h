// SPDX-License-Identifier: BSD-3-Clause
// Remembers the classes of the modules that a walk meets.
#pragma once

#include <variant>

#include "module/class_info.h"

namespace modtree {

// Asks of modules whether their class compares them by identity and overrides none of the methods.
template <Virtual... methods>
class PlainClass {
public:
  // False also for values that are not modules and for classes that were not met before. Runs no
  // user code.
  bool has(PyObject *object) { return remembers(object) || look_at(Py_TYPE(object)); }

  // The same of a class that was asked for lately; calls nothing.
  bool remembers(PyObject *object) const {
    std::monostate nothing;
    return plain_.find(Py_TYPE(object), &nothing);
  }

private:
  // Out of the way of the loops, which meet few classes.
  [[gnu::noinline]] bool look_at(PyTypeObject *type) {
    ClassInfo info;
    if (!class_cache.find(type, &info) || !info.identity_hash() ||
        info.overrides_any<methods...>()) {
      return false;
    }
    plain_.store(type, type_version(type), {});
    return true;
  }

  TypeCache<std::monostate, 4> plain_;  // few, and the blocks of a net repeat them
};

}  // namespace modtree
