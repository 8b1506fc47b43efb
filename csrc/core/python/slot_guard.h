// SPDX-License-Identifier: BSD-3-Clause
// The boundary between C++ exceptions and CPython: a function that CPython calls has one slot_guard
// as its body.
#pragma once

#include <pybind11/pytypes.h>

#include <new>

namespace modtree {

// Returns run(); a C++ exception becomes a Python error and `error_value` is returned.
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
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "a C++ exception of unknown type");
  }
  return error_value;
}

}  // namespace modtree
