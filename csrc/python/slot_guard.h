// SPDX-License-Identifier: BSD-3-Clause
// The boundary between C++ exceptions and CPython: a function that CPython calls has one slot_guard
// as its body.
#pragma once

#include <pybind11/pytypes.h>

#include <new>

#if defined(__GLIBCXX__) && defined(__linux__)
#include <cxxabi.h>
#include <unistd.h>
#endif

namespace modtree {

// Returns run(); a C++ exception becomes a Python error and `error_value` is returned.
//
// Before 3.14, CPython ends daemon threads with pthread_exit() when they ask for the GIL of a
// process that exits, which glibc does by unwinding. The thread sleeps here instead, as in 3.14:
// going on would end in std::terminate(), and the callers have no GIL.
template <class Result, class Run>
Result slot_guard(Result error_value, Run &&run) noexcept {
  try {
    return run();
  } catch (pybind11::error_already_set &error) {
    error.restore();
  } catch (const pybind11::builtin_exception &error) {
    error.set_error();
  } catch (const std::bad_alloc &) {
    PyErr_NoMemory();
  } catch (const std::exception &error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
#if defined(__GLIBCXX__) && defined(__linux__)
  } catch (const abi::__forced_unwind &) {
    for (;;) {
      pause();
    }
#endif
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "a C++ exception of unknown type");
  }
  return error_value;
}

}  // namespace modtree
