// SPDX-License-Identifier: BSD-3-Clause
// Calls of operations on batched tensors (vmap): modtree._batching carries them out.
#pragma once

#include "python/installed.h"
#include "tensor/op.h"

namespace modtree {

// How many vmap are running, in all threads together: while there is none, nothing else is asked.
extern int batching_depth;

// A tensor that stands for one sample of a batch. It is on meta: what native code would compute on
// it without going through `op_call` is an error, not a wrong number.
inline bool is_batched(PyObject *obj) {
  return batching_depth != 0 &&
         reinterpret_cast<PyObject *>(Py_TYPE(obj)) == installed.BatchedTensor;
}

// Is one of the arguments batched, or an item of a tuple or list among them, or in one of those? A
// list may hold itself, so no deeper.
bool find_batched(PyObject *const *args, Py_ssize_t count, int depth = 3);
inline bool any_batched(PyObject *const *args, Py_ssize_t count) {
  return batching_depth != 0 && find_batched(args, count);
}

// op(*args) where one of the arguments is batched. New reference.
PyObject *call_batched(OpObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

// The same for op_inplace(). 0, or -1 with an error set.
int call_batched_inplace(OpObject *op, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);

// A write of something batched into a tensor that is not. -1 with RuntimeError.
int refuse_batched_write(const char *what);

}  // namespace modtree
