// SPDX-License-Identifier: BSD-3-Clause
// Arguments of METH_FASTCALL | METH_KEYWORDS methods.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

constexpr int kMaxArguments = 8;

// What a method takes. Parameters from `keyword_only_from` on cannot be given by position.
struct ArgumentNames {
  const char *function;
  const char *parameters[kMaxArguments];  // the rest is null
  int required = 0;                        // the first so many must be given
  int keyword_only_from = kMaxArguments;
};

// Fills `values` (null where not given; borrowed from the call). -1 with Python's usual TypeError.
int parse_arguments(const ArgumentNames &names, PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **values);

}  // namespace modtree
