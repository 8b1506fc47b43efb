// SPDX-License-Identifier: BSD-3-Clause
// One entry of load_state_dict: may it be stored, and how (BEHAVIOUR 8.5, 8.9).
#pragma once

#include "family/family.h"
#include "family/no_grad.h"
#include "module/object.h"

namespace modtree {

struct LoadMode {
  bool assign = false;  // put the checkpoint's tensors in place of the module's
  bool swap = false;    // exchange contents of tensors of some family: see swaps()
};

// A tensor of a module and what the checkpoint has for it. `key` is its full name.
struct LoadEntry {
  PyObject *module;  // borrowed, as all
  PyObject *name;
  PyObject *key;
  PyObject *tensor;
  TensorFamily *family;
};

// The switch of modtree.__future__, or of the library for its tensors; -1 on error.
int swaps(const LoadEntry &entry, const LoadMode &mode);

// 1: `source` may be stored (it is replaced by its only element where torch does so). 2: so it may,
// but the copy does nothing, and warn_of_meta_copy warns of that. 0: it may not, `message` says
// why. -1: an error that is not to be collected. May run Python code.
int check_entry(const LoadEntry &entry, const LoadMode &mode, py::object *source,
                py::object *message);

// The warning that values cannot be copied to the meta device; -1 when it is an error.
int warn_of_meta_copy(PyObject *key);

// 1: stored. 0: an exception, which `message` reports. -1: an error that is not to be collected.
int store_entry(const LoadEntry &entry, const LoadMode &mode, PyObject *source,
                py::object *message);

// The parts of that, for a caller that has a key only if it fails: stores it, or -1 with an error
// set; `entry.key` may be null.
int try_to_store(const LoadEntry &entry, const LoadMode &mode, PyObject *source);
// Takes that error if it is to be collected.
bool take_failure(py::object *exception);
// What reports it; null on error.
PyObject *failure_message(const LoadEntry &entry, const LoadMode &mode, PyObject *source,
                          const py::object &exception);

}  // namespace modtree
