// SPDX-License-Identifier: BSD-3-Clause
// The `_metadata` of a state dict that is being loaded.
#pragma once

#include "module/object.h"

namespace modtree {

// 1 when `value` is a mapping, -1 on error.
int is_mapping(PyObject *value);

class CheckpointMetadata {
public:
  // -1 with TypeError when it is not a mapping.
  int start(PyObject *state_dict);

  // The paths of modules whose metadata is not a mapping: a set, or null when there are none. They
  // are an error only if the tree has them.
  PyObject *bad_entries() const { return bad_.ptr(); }

  // The metadata as the root's dict carries it: borrowed, null when there is none; check
  // PyErr_Occurred().
  PyObject *get();

  // What a module gets as local_metadata: new reference, null on error. The flag of assign mode
  // goes into a copy, so that the caller's checkpoint stays what it is; such a flag in the caller's
  // own metadata is left out.
  PyObject *local(PyObject *prefix, bool assign);

private:
  int find_bad_entries();

  py::object owner_;  // a StateDict that has only a record so far
  py::object metadata_;
  py::object bad_;
};

}  // namespace modtree
