// SPDX-License-Identifier: BSD-3-Clause
// Calls of plain Python functions with one more argument in front of those that were given.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>

#include "python/compat.h"

namespace modtree {

// True if this call lends the place before its first argument.
inline bool lends_place(std::size_t flagged_count) {
  return (flagged_count & PY_VECTORCALL_ARGUMENTS_OFFSET) != 0;
}

// The rest of call_with_first(): for a caller that lends no place. Kept out of line, so that the
// others need no room on the stack.
[[gnu::noinline]] inline PyObject *call_with_copied(PyObject *function, PyObject *first,
                                                    PyObject *const *args, Py_ssize_t count,
                                                    PyObject *keyword_names) {
  const Py_ssize_t total = count + (keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0);
  constexpr Py_ssize_t kSmall = 8;
  PyObject *small[kSmall + 1];
  PyObject **stack = total > kSmall ? PyMem_New(PyObject *, total + 1) : small;
  if (!stack) {
    return PyErr_NoMemory();
  }
  stack[0] = first;
  // Mostly one or two: not worth the call that std::copy_n is.
  for (Py_ssize_t i = 0; i < total; ++i) {
    stack[i + 1] = args[i];
  }
  PyObject *result =
      call_function(function, stack, static_cast<std::size_t>(count) + 1, keyword_names);
  if (stack != small) {
    PyMem_Free(stack);
  }
  return result;
}

// function(first, *args, **keywords) for an exact Python function, which the caller owns.
inline PyObject *call_with_first(PyObject *function, PyObject *first, PyObject *const *args,
                                 std::size_t flagged_count, PyObject *keyword_names) {
  const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  if (!lends_place(flagged_count)) {
    return call_with_copied(function, first, args, count, keyword_names);
  }
  auto **stack = const_cast<PyObject **>(args) - 1;
  PyObject *lent = stack[0];
  stack[0] = first;
  PyObject *result =
      call_function(function, stack, static_cast<std::size_t>(count) + 1, keyword_names);
  stack[0] = lent;
  return result;
}

}  // namespace modtree
