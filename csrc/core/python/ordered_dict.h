// SPDX-License-Identifier: BSD-3-Clause
// Adds entries to an OrderedDict whose keys are plain strs: where the layout of CPython's object is
// known with one look-up, where CPython's function needs three.
#pragma once

#include "python/dict_lookup.h"

namespace modtree {

// As PyODict_SetItem(), for an OrderedDict or an instance of a subclass that stores as it does.
// Runs user code only where that does: when a value is replaced, and when keys are compared that
// are not plain strs.
int ordered_dict_set(PyObject *dict, PyObject *key, PyObject *value);

// Fills an empty OrderedDict with `count` entries at once, in their order, where the keys of
// `keys`, an exact dict, are the same objects in the same order: its table is copied instead of
// being made key by key. Takes over the references of the entries. False, and nothing is changed,
// where the keys are others or that cannot be done. Runs no user code, but the collector may.
bool fill_ordered_dict(PyObject *dict, PyObject *keys, const DictEntry *entries, Py_ssize_t count);

// True if that can be done for this dict as it is, and for empty ones at all.
bool can_fill_ordered_dict(PyObject *dict);
bool can_fill_ordered_dicts();

// Compares with dicts that CPython has filled, and lets the function above write to an OrderedDict
// only when all agrees. Called once at import, after init_dict_lookup(). Throws error_already_set.
void init_ordered_dict();

}  // namespace modtree
