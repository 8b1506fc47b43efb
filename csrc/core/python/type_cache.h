// SPDX-License-Identifier: BSD-3-Clause
// Facts about Python types, remembered as long as the type does not change.
#pragma once

#include <pybind11/pytypes.h>

#include <array>

#include "python/compat.h"

namespace modtree {

// A cache keyed by (type, version), of `sets` times two places: two for the types whose addresses
// fall together. Versions are never used twice, so neither a change of the class nor a new class at
// the address of a dead one can be mistaken for what was cached; no reference to the type is held.
template <class Facts, std::size_t sets = 1024>
class TypeCache {
public:
  // True and a copy of the cached facts. Never a pointer to them: any other type may take their
  // place at the next store.
  bool find(PyTypeObject *type, Facts *facts) const {
    const TypeVersion version = type_version(type);
    const Set &set = sets_[index(type)];
    if (set.recent.type == type && set.recent.version == version) {
      *facts = set.recent.facts;
      return true;
    }
    if (set.older.type == type && set.older.version == version) {
      *facts = set.older.facts;
      return true;
    }
    return false;
  }

  // Remembers `facts`, which were found out when the type had this version. Not for a type without
  // one (0), as CPython leaves those that change too often: all of them would look alike.
  // Runs no user code, and does not look at the type, which may be gone.
  void store(PyTypeObject *type, TypeVersion version, const Facts &facts) {
    if (version == 0) {
      return;
    }
    Set &set = sets_[index(type)];
    if (set.recent.type != type) {
      set.older = set.recent;
    }
    set.recent = Entry{type, version, facts};
  }

  void clear() { sets_.fill(Set{}); }

private:
  struct Entry {
    PyTypeObject *type = nullptr;
    TypeVersion version = 0;
    Facts facts{};
  };
  struct Set {
    Entry recent;
    Entry older;
  };
  static_assert((sets & (sets - 1)) == 0, "a mask chooses among them");

  static std::size_t index(PyTypeObject *type) {
    const auto bits = reinterpret_cast<std::uintptr_t>(type);
    return ((bits >> 4) ^ (bits >> 14)) & (sets - 1);
  }

  std::array<Set, sets> sets_{};
};

}  // namespace modtree
