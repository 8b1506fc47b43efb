// SPDX-License-Identifier: BSD-3-Clause
// Saving one module on its own: Module._save_to_state_dict (BEHAVIOUR 7.5 to 7.8).
#pragma once

#include <cstddef>
#include <vector>

#include "family/family.h"
#include "module/object.h"
#include "python/dict_lookup.h"
#include "python/signals.h"

namespace modtree {

// The entries of a state dict that a walk has come to, until they go into the dict all at once.
//
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

// Where entries go, and how. `object` is borrowed.
struct Destination {
  using SetItem = int (*)(PyObject *, PyObject *, PyObject *);

  // Picks the cheapest store that has the same effect as that of the destination's own class.
  Destination(PyObject *destination, bool keep_vars, PyObject *state_dict_type);

  int store(PyObject *key, PyObject *value) const {
    return batch ? batch->add(key, value) : set(object, key, value);
  }

  PyObject *object;
  SetItem set;
  EntryBatch *batch = nullptr;  // what keeps the entries meanwhile; borrowed
  bool keep_vars;
  mutable FamilyMemo families;
  mutable SignalCheck signals;
};

// The prefix of a module, made when it is asked for.
struct LazyPrefix {
  PyObject *(*make)(void *context);  // borrowed while the module is saved, null on error
  void *context;
  PyObject *known = nullptr;

  PyObject *get() { return known ? known : known = make(context); }
};

// Stores the parameters, persistent buffers and the extra state of a module.
int save_own(PyObject *module, const Destination &destination, LazyPrefix prefix);

}  // namespace modtree
