// SPDX-License-Identifier: BSD-3-Clause
// Arguments of METH_FASTCALL | METH_KEYWORDS methods.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// The parameters of a function: those before `positional_only` cannot be given by keyword, those
// from `keyword_only_from` on not by position.
struct ParameterList {
  const char *function;
  const char *const *names;
  int count;
  int required;  // the first so many must be given
  int positional_only;
  int keyword_only_from;
};

// Fills `values`, which are null, where an argument was given; borrowed from the call. -1 with
// Python's usual TypeError.
int match_arguments(const ParameterList &parameters, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords, PyObject **values);

constexpr int kMaxArguments = 8;

// What a method takes. Parameters from `keyword_only_from` on cannot be given by position.
struct ArgumentNames {
  const char *function;
  const char *parameters[kMaxArguments];  // the rest is null
  int required = 0;                       // the first so many must be given
  int keyword_only_from = kMaxArguments;
};

// match_arguments for these.
int parse_arguments(const ArgumentNames &names, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords, PyObject **values);

// The truth of an optional argument; `fallback` when it was not given, -1 on error.
inline int truth_or(PyObject *value, int fallback) {
  return value ? PyObject_IsTrue(value) : fallback;
}

// That of two: -1 at the first that fails, as nothing may run with an error set.
inline int truths_or(PyObject *a, int *a_or, PyObject *b, int *b_or) {
  *a_or = truth_or(a, *a_or);
  *b_or = *a_or < 0 ? -1 : truth_or(b, *b_or);
  return *b_or < 0 ? -1 : 0;
}

}  // namespace modtree
