// SPDX-License-Identifier: BSD-3-Clause
// Where the modules of a walk lay, so that the next walk of the same tree asks for their memory
// before it comes to them. Below one another, each is found by reads that wait for one another.
#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

#include "module/object.h"
#include "module/walk/last_roots.h"
#include "python/prefetch.h"

namespace modtree {

// The modules with children, in the order of a walk. Their addresses are compared and prefetched
// and never read from: it does not matter what has become of them.
class PrefetchTrail {
public:
  // The trail of the last walk from this root, where it is among the last few roots; one to be made
  // anew otherwise.
  static PrefetchTrail &of(PyObject *root) {
    static LastRoots<PrefetchTrail> trails;
    PrefetchTrail *known = trails.find(root);
    PrefetchTrail &trail = known ? *known : trails.remember(root);
    trail.next_ = 0;
    return trail;
  }

  // The walk comes to a module of which `children` is the registry.
  void pass(PyObject *module, PyObject *children) {
    if (next_ + kAhead < places_.size()) {
      const Place &ahead = places_[next_ + kAhead];
      prefetch_head(ahead.module, kModuleHead);
      prefetch_head(ahead.children, sizeof(PyDictObject));
      prefetch_head(ahead.table, kTableHead);
    }
    if (next_ == places_.size()) {
      if (next_ == kLongest) {
        return;
      }
      places_.push_back({});
    }
    // Written only where it is new: the next reads would wait for the write.
    Place &here = places_[next_++];
    if (here.module != module || here.children != children) {
      here = {module, children, reinterpret_cast<PyDictObject *>(children)->ma_keys};
    }
  }

private:
  struct Place {
    const void *module, *children, *table;
  };
  static constexpr std::size_t kAhead = 6;
  static constexpr std::size_t kLongest = 4096;
  static constexpr std::size_t kTableHead = 64;  // as far as the first entry of a small table

  std::size_t next_ = 0;
  std::vector<Place> places_;
};

}  // namespace modtree
