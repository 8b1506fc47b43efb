// SPDX-License-Identifier: BSD-3-Clause
// The function modes of a thread, and the switches of the tensor function protocol in Python.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>

namespace modtree {

namespace py = pybind11;

std::size_t mode_count();  // of this thread

// Takes the innermost mode off the stack, and puts it back at the end.
class SuspendedMode {
public:
  SuspendedMode();
  SuspendedMode(const SuspendedMode &) = delete;
  SuspendedMode &operator=(const SuspendedMode &) = delete;
  ~SuspendedMode();

  const py::object &mode() const { return mode_; }

private:
  py::object mode_;
};

// modtree._C._disabled_torch_function_impl: a class with this as its `__torch_function__` takes no
// part. Borrowed.
PyObject *disabled_implementation();

}  // namespace modtree
