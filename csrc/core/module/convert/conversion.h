// SPDX-License-Identifier: BSD-3-Clause
// What Module's conversions hand to _apply: callables that C++ recognises.
#pragma once

#include "module/object.h"

namespace modtree {

// `_C.Conversion(scope, *, device, dtype, non_blocking, memory_format, hint)`: a callable that
// converts one tensor.
// `_C.KeepTies(fn)`: calls fn once per distinct tensor of one conversion, and remembers what became
// of each.
void make_conversion_types(py::handle m);

bool is_keep_ties(PyObject *fn);
PyObject *new_keep_ties(PyObject *fn);  // new reference; null on error

// What a tensor registered under another name became earlier in this conversion: 1 and a new
// reference, 0, or -1 on error.
int find_converted(PyObject *keep_ties, PyObject *tensor, PyObject **replacement);
int remember_converted(PyObject *keep_ties, PyObject *tensor, PyObject *replacement);

}  // namespace modtree
