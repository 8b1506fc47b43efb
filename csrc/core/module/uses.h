// SPDX-License-Identifier: BSD-3-Clause
// Tells Python code which modules its thread uses: for functions that must not change modules that
// they were not given.
#pragma once

#include <pybind11/pytypes.h>

#include <atomic>

namespace modtree {

namespace py = pybind11;

// How many threads want to know it.
inline std::atomic<int> watching_threads{0};

inline bool is_watched() { return watching_threads.load(std::memory_order_relaxed) != 0; }

// For the entries of native code: a module is read, written, called or made. -1 with an error set.
// Runs user code in threads that want to know it.
int tell_use(PyObject *module, bool is_new);

inline int note_use(PyObject *module, bool is_new = false) {
  return is_watched() ? tell_use(module, is_new) : 0;
}

// Gives the thread a function that is called with each module and whether it is new, or None.
// Returns the one before.
py::object watch_uses(py::handle function);

}  // namespace modtree
