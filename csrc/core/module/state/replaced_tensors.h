// SPDX-License-Identifier: BSD-3-Clause
// The immutable tensors that a load puts in the place of others (TensorFamily::is_immutable).
#pragma once

#include <pybind11/pytypes.h>

#include <unordered_map>

#include "module/state/load_entry.h"

namespace modtree {

namespace py = pybind11;

// Of one load_state_dict(), during which it is AtWork; to be asked for again after Python code has
// run. A tensor with several names stays one: what takes its place under one name does so under all
// that settle() finds.
class ReplacedTensors {
public:
  // What took the place of a tensor when it was loaded from that source; empty when nothing did.
  py::object find(PyObject *tensor, PyObject *source) const;
  void note(PyObject *tensor, PyObject *source, PyObject *replacement);

  // Puts replacements under the names that the load has not come by. -1 on error.
  int settle(PyObject *root);

private:
  struct Replaced {
    py::object tensor;  // owned, as its address is the key
    py::object source;
    py::object replacement;
  };

  PyObject *last_replacement(PyObject *tensor) const;
  int settle_registry(PyObject *module, Slot slot) const;

  std::unordered_map<PyObject *, Replaced> replaced_;
};

// Stores a tensor like that of an immutable entry, with the values of `source`. -1 on error.
int replace_entry(const LoadEntry &entry, const LoadMode &mode, PyObject *source);

}  // namespace modtree
