// SPDX-License-Identifier: BSD-3-Clause
// The methods of a tensor that copy, convert and fill values; tensor/methods.cpp lists them.
#pragma once

#include "tensor/object.h"

namespace modtree {

// Arguments that are rare, memory formats mostly: modtree.memory_formats checks them, and calls the
// method of that name without them.
PyObject *with_arguments(const char *name, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *keywords);

PyObject *tensor_zero_(PyObject *self, PyObject *);
PyObject *tensor_copy_(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *tensor_clone(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
// With the dtype of this number.
PyObject *tensor_cast(PyObject *self, int num);
PyObject *tensor_convert(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

// tensor.copy_(source): values with conversion of dtype and broadcasting. `source` may be a tensor,
// an ndarray, or an object of another library with a family. The caller has checked that self may
// be changed. 0, or -1 with an error set.
int copy_values(TensorObject *self, PyObject *source);

// Does that for two tensors of the same dtype and shape whose values are in memory in that order;
// false: nothing was done. Never an error, and runs no Python code.
bool copy_memory(TensorObject *self, TensorObject *source);

// A tensor with this dtype (null: as it is) on meta or cpu. A new reference to self when nothing
// changes and copy is false. Recorded where gradients are.
PyObject *convert_tensor(TensorObject *self, DTypeObject *dtype, bool to_meta, bool copy);

// 1 for meta, 0 for cpu, -1 with an error set. None is not accepted.
int device_is_meta(PyObject *device);

// Begins to record that all values of `self` become `value` (a number or a 0-d tensor).
class InplaceRecord;
int begin_fill(InplaceRecord &recorded, TensorObject *self, PyObject *value = Py_None);

}  // namespace modtree
