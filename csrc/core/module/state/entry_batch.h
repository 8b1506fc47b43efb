// SPDX-License-Identifier: BSD-3-Clause
// The entries of a state dict that a walk has come to, until they go into the dict all at once.
#pragma once

#include <cstddef>
#include <vector>

#include "module/object.h"
#include "python/dict_lookup.h"

namespace modtree {

// Nobody sees a new dict before the end of a walk that hands it to no user code, so it need not
// have an entry before. At the end its keys most often are those of the last walk from the same
// root: where these are remembered, their table is copied instead of being filled key by key.
class EntryBatch {
public:
  // `destination`: an OrderedDict or a dict of a class that stores as it does; borrowed, as `root`,
  // which is only compared.
  EntryBatch(PyObject *root, PyObject *destination);
  EntryBatch(const EntryBatch &) = delete;
  EntryBatch &operator=(const EntryBatch &) = delete;
  ~EntryBatch() { clear(); }

  // Stores an entry: later, where keys of the root are remembered. -1 on error.
  int add(PyObject *key, PyObject *value);

  // Stores what was kept so far; from now on entries are stored at once. -1 on error.
  int flush();

  // The walk is over. -1 on error.
  int finish();

private:
  // So many keys are remembered at most, and at least: copying a smaller table gains nothing.
  static constexpr Py_ssize_t kMost = Py_ssize_t{1} << 16;
  static constexpr Py_ssize_t kFewest = 8;

  void clear();

  PyObject *root_;
  PyObject *destination_;
  bool keeps_ = false;
  std::vector<DictEntry> entries_;  // owned
};

}  // namespace modtree
