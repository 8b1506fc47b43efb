// SPDX-License-Identifier: BSD-3-Clause
// What a library's `Parameter.__deepcopy__` does, without its Python frames.
#pragma once

#include <pybind11/pytypes.h>

#include "python/compat.h"

namespace modtree {

namespace py = pybind11;

// For a library that describes its copies as torch does: make(Parameter, clone of the data,
// requires_grad), where `__deepcopy__` and the constructor are its own.
class ParameterCopies {
public:
  // A modtree.core.family.ParameterCopies, or None for a library whose copies it makes itself.
  // Throws error_already_set.
  explicit ParameterCopies(py::handle description);

  // New reference. Null without an error where `__deepcopy__` is to be called; null with an error
  // set on failure. The value is of the class itself.
  PyObject *copy(PyObject *parameter);

private:
  // Has the class what it had under the names that decide? Remembered until it changes.
  bool is_as_described();
  bool compare() const;

  py::object parameter_type_, plain_types_, make_, memory_format_, clone_names_, deciding_;
  TypeVersion known_version_ = 0;
  bool known_answer_ = false;
};

}  // namespace modtree
