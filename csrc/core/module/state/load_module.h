// SPDX-License-Identifier: BSD-3-Clause
// Loading one module on its own: Module._load_from_state_dict (BEHAVIOUR 8.5 to 8.8).
#pragma once

#include "module/object.h"

namespace modtree {

// The three lists that one load shares; any objects with `append`. Borrowed.
struct LoadLists {
  PyObject *missing;
  PyObject *unexpected;
  PyObject *errors;
};

// 0 or -1.
int append_to(PyObject *list, PyObject *item);

// Everything in torch's order and at once: pre-hooks, entries, extra state, unexpected keys.
int load_own(PyObject *module, PyObject *state_dict, PyObject *prefix, PyObject *local_metadata,
             PyObject *strict, const LoadLists &lists);

}  // namespace modtree
