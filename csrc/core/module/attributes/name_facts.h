// SPDX-License-Identifier: BSD-3-Clause
// What reading and writing an attribute must know of (class, name), remembered as long as the class
// does not change: that the class has nothing under the name, and whether it is one of the 17
// entries.
#pragma once

#include <array>

#include "module/bases_behind.h"
#include "module/object.h"

namespace modtree {

// A direct-mapped cache keyed by (version of the class, name). Versions are never used twice. It
// owns its names, so no other string can get the address of one; all are exact strs with a hash.
class NameFacts {
public:
  static constexpr int kUnknown = -2;
  static constexpr int kPlain = -1;

  // The Slot of a name under which the class has nothing, kPlain for one that is neither among the
  // 17 entries nor a virtual method, or kUnknown. One with a dot in it, or without a character, is
  // never plain: no registry takes it.
  int find(TypeVersion version, PyObject *name) const {
    const Entry &entry = entries_[index(version, name)];
    return entry.name == name && entry.version == version ? entry.slot : kUnknown;
  }

  // Remembers that a class, which the caller owns and which had this version before it was
  // searched, has nothing under the name. Not where a class behind Module takes part in writes,
  // since the entry is for writes too. May run user code, as class_info() does.
  void learn(PyTypeObject *type, TypeVersion version, PyObject *name);

private:
  struct Entry {
    PyObject *name = nullptr;
    TypeVersion version = 0;
    int slot = kUnknown;
  };
  static constexpr std::size_t kSize = 4096;

  static std::size_t index(TypeVersion version, PyObject *name) {
    return (version ^ (reinterpret_cast<std::uintptr_t>(name) >> 4)) & (kSize - 1);
  }

  std::array<Entry, kSize> entries_{};
};

extern MODTREE_PER_THREAD NameFacts name_facts;

// True if the class has nothing under the name, the name is not special, and only Module handles a
// write to it.
inline bool is_plain_name(PyTypeObject *type, PyObject *name) {
  const TypeVersion version = type_version(type);
  if (name_facts.find(version, name) == NameFacts::kPlain) {
    return true;
  }
  // What the questions run may take the type from its object.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  if (type_has(type, name) || find_special_name(name) || hands_writes_on(type)) {
    return false;
  }
  name_facts.learn(type, version, name);
  return true;
}

}  // namespace modtree
