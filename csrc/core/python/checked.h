// SPDX-License-Identifier: BSD-3-Clause
// Results of the C API in code that throws: a failure becomes the exception that is set.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

namespace py = pybind11;

[[noreturn]] inline void fail() { throw py::error_already_set(); }

// Takes a new reference.
inline py::object owned(PyObject *made) {
  if (!made) {
    fail();
  }
  return py::reinterpret_steal<py::object>(made);
}

// For a status.
inline void check(int result) {
  if (result < 0) {
    fail();
  }
}

}  // namespace modtree
