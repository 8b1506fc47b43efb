// SPDX-License-Identifier: BSD-3-Clause
// Facts about Python types, remembered as long as the type does not change.
#pragma once

#include <pybind11/pytypes.h>

#include <array>

#include "py/compat.h"

namespace modtree {

// A direct-mapped cache keyed by (type, version tag). Version tags are never used twice, so neither a change of the class nor a new class at
// the address of a dead one can be mistaken for what was cached; no reference to the type is held.
template <class Facts>
class TypeCache {
public:
  // The cached facts, or null.
  Facts *find(PyTypeObject *type) {
    Entry &entry = entries_[index(type)];
    return entry.type == type && entry.version == type_version(type) ? &entry.facts : nullptr;
  }

  // Remembers `facts` when the type has a version tag; returns where they stand until the next store.
  Facts *store(PyTypeObject *type, const Facts &facts) {
    const unsigned int version = type_version(type);
    Entry &entry = version ? entries_[index(type)] : unversioned_;
    // Version 0 never matches in find(): it would be equal to that of any other changed class.
    entry.type = version ? type : nullptr;
    entry.version = version;
    entry.facts = facts;
    return &entry.facts;
  }

  void clear() { entries_.fill(Entry{}); }

private:
  struct Entry {
    PyTypeObject *type = nullptr;
    unsigned int version = 0;
    Facts facts{};
  };
  static constexpr std::size_t kSize = 1024;

  static std::size_t index(PyTypeObject *type) {
    const auto bits = reinterpret_cast<std::uintptr_t>(type);
    return ((bits >> 4) ^ (bits >> 14)) & (kSize - 1);
  }

  std::array<Entry, kSize> entries_{};
  Entry unversioned_{};
};

}  // namespace modtree
