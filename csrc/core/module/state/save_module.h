// SPDX-License-Identifier: BSD-3-Clause
// Saving one module on its own: Module._save_to_state_dict (BEHAVIOUR 7.5 to 7.8).
#pragma once

#include "family/family.h"
#include "module/object.h"
#include "module/state/entry_batch.h"
#include "python/signals.h"

namespace modtree {

// Where entries go, and how. `object` is borrowed.
struct Destination {
  using SetItem = int (*)(PyObject *, PyObject *, PyObject *);

  // Picks the cheapest store that the destination's own class would do as well.
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
