// SPDX-License-Identifier: BSD-3-Clause
// What operations say when they cannot be done, and shapes of meta results.
#pragma once

#include "tensor/object.h"

namespace modtree {

// Turns a pending NumPy error into the exception torch users expect: AxisError -> IndexError,
// ValueError -> RuntimeError. `target` is the tensor that is written in place, if any.
void translate_error(PyObject *op_name, PyObject *const *args, Py_ssize_t nargs,
                     PyArrayObject *target = nullptr);

void raise_no_bool(PyObject *op_name);
void raise_dtype_mismatch(PyObject *op_name, int a, int b);
void raise_output_shape(PyArrayObject *target, PyArrayObject *result);

// Broadcasts the shape of `array` into (shape, ndim). False with RuntimeError set.
bool broadcast_into(PyArrayObject *array, npy_intp *shape, int *ndim);

// A meta array for (shape, dtype), or a tuple of them for a list of such pairs.
PyObject *meta_from_spec(PyObject *spec);

// "[2, 3]". New reference.
PyObject *shape_text(PyArrayObject *array);

}  // namespace modtree
