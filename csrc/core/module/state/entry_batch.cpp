// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/entry_batch.h"

#include <algorithm>
#include <utility>

#include "module/walk/last_roots.h"
#include "python/ordered_dict.h"
#include "python/owned.h"

namespace modtree {

namespace {

// What is known of the keys of walks from one root.
struct KnownKeys {
  PyObject *keys = nullptr;  // a dict with None for every value, handed out to nobody; or null
  // Keys that were noted may be of no use each time: where walks of other trees come between, which
  // take their places in the memo of names, the same keys are other objects. So more and more walks
  // pass before they are noted again.
  int pause = 0;
  int left_of_pause = 0;
};
constexpr int kLongestPause = 63;
LastRoots<KnownKeys> known_roots;

// Null without an error where there is no memory.
Owned keys_of(PyObject *dict) {
  Owned keys = steal(PyDict_New());
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (keys && dict_next_item(dict, &position, &key, &value)) {
    const Owned held = borrow(key);
    if (PyDict_SetItem(keys.ptr(), key, Py_None) < 0) {
      keys = Owned();
    }
  }
  if (!keys) {
    PyErr_Clear();
  }
  return keys;
}

// After a walk that had no use for known keys. After two walks from the same root a third is
// likely.
void note_keys(PyObject *root, PyObject *destination) {
  KnownKeys *known = known_roots.find(root);
  if (!known) {
    const Owned old = steal(std::exchange(known_roots.remember(root), {}).keys);
    return;
  }
  if (known->left_of_pause > 0) {
    --known->left_of_pause;
    const Owned old = steal(std::exchange(known->keys, nullptr));
    return;
  }
  Owned keys = keys_of(destination);
  // Found anew: the collector may have run other walks meanwhile.
  known = known_roots.find(root);
  if (known) {
    known->pause = std::min(2 * known->pause + 1, kLongestPause);
    known->left_of_pause = known->pause;
    const Owned old = steal(std::exchange(known->keys, keys.release().ptr()));
  }
}

void note_use(PyObject *root) {
  if (KnownKeys *known = known_roots.find(root)) {
    known->pause = known->left_of_pause = 0;
  }
}

}  // namespace

EntryBatch::EntryBatch(PyObject *root, PyObject *destination)
    : root_(root),
      destination_(destination) {
  const KnownKeys *known = known_roots.find(root);
  keeps_ = known && known->keys && can_fill_ordered_dict(destination);
  if (keeps_) {
    entries_.reserve(static_cast<std::size_t>(PyDict_GET_SIZE(known->keys)));
  }
}

void EntryBatch::clear() {
  for (const DictEntry &entry : std::exchange(entries_, {})) {
    Py_DECREF(entry.key);
    Py_DECREF(entry.value);
  }
}

int EntryBatch::add(PyObject *key, PyObject *value) {
  if (!keeps_) {
    return ordered_dict_set(destination_, key, value);
  }
  entries_.push_back({key, value});
  Py_INCREF(key);
  Py_INCREF(value);
  return 0;
}

int EntryBatch::flush() {
  keeps_ = false;
  for (const DictEntry &entry : entries_) {
    if (ordered_dict_set(destination_, entry.key, entry.value) < 0) {
      return -1;
    }
  }
  clear();
  return 0;
}

int EntryBatch::finish() {
  const KnownKeys *known = keeps_ ? known_roots.find(root_) : nullptr;
  const Owned keys = borrow(known ? known->keys : nullptr);
  if (keys && fill_ordered_dict(destination_, keys.ptr(), entries_.data(),
                                static_cast<Py_ssize_t>(entries_.size()))) {
    entries_.clear();
    note_use(root_);
    return 0;
  }
  if (flush() < 0) {
    return -1;
  }
  // Other keys than plain strs would run user code where they are noted, and never be of use.
  const Py_ssize_t size = PyDict_GET_SIZE(destination_);
  if (size >= kFewest && size <= kMost && can_fill_ordered_dicts() && has_only_strs(destination_)) {
    note_keys(root_, destination_);
  }
  return 0;
}

}  // namespace modtree
