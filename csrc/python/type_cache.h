// SPDX-License-Identifier: BSD-3-Clause
// Facts about Python types, remembered as long as the type does not change.
#pragma once

#include <pybind11/pytypes.h>

#include <array>

#include "python/compat.h"

namespace modtree {

// A direct-mapped cache keyed by (type, version). Versions are never used twice, so neither a
// change of the class nor a new class at the address of a dead one can be mistaken for what was
// cached; no reference to the type is held.
template <class Facts>
class TypeCache {
public:
  // True and a copy of the cached facts. Never a pointer to them: any other type may take their
  // place at the next store.
  bool find(PyTypeObject *type, Facts *facts) const {
    const Entry &entry = entries_[index(type)];
    if (entry.type != type || entry.version != type_version(type)) {
      return false;
    }
    *facts = entry.facts;
    return true;
  }

  // Remembers `facts`, which were found out when the type had this version. Not for a type without
  // one (0), as CPython leaves those that change too often: all of them would look alike.
  // Runs no user code, and does not look at the type, which may be gone.
  void store(PyTypeObject *type, TypeVersion version, const Facts &facts) {
    if (version != 0) {
      entries_[index(type)] = Entry{type, version, facts};
    }
  }

  void clear() { entries_.fill(Entry{}); }

private:
  struct Entry {
    PyTypeObject *type = nullptr;
    TypeVersion version = 0;
    Facts facts{};
  };
  static constexpr std::size_t kSize = 1024;

  static std::size_t index(PyTypeObject *type) {
    const auto bits = reinterpret_cast<std::uintptr_t>(type);
    return ((bits >> 4) ^ (bits >> 14)) & (kSize - 1);
  }

  std::array<Entry, kSize> entries_{};
};

}  // namespace modtree
