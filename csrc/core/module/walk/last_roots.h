// SPDX-License-Identifier: BSD-3-Clause
// What is remembered of the last walks, by their roots.
#pragma once

#include <array>
#include <cstddef>

namespace modtree {

// A value for each of the last four roots, which are compared by their addresses and never read
// from: it does not matter what has become of them.
template <class Value>
class LastRoots {
public:
  // Null for a root that is not among them. Until the next remember().
  Value *find(const void *root) {
    for (Entry &entry : entries_) {
      if (entry.root == root) {
        return &entry.value;
      }
    }
    return nullptr;
  }

  // For a root that is not among them, in place of the oldest one, whose value it still has.
  Value &remember(const void *root) {
    Entry &entry = entries_[oldest_];
    oldest_ = (oldest_ + 1) % entries_.size();
    entry.root = root;
    return entry.value;
  }

private:
  struct Entry {
    const void *root = nullptr;
    Value value;
  };
  std::array<Entry, 4> entries_{};
  std::size_t oldest_ = 0;
};

}  // namespace modtree
