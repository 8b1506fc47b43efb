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
void raise_output_dtype(PyObject *op_name, int result, int target);

// The class with its module ("torch.Tensor", "int"): both libraries call theirs Tensor.
py::object type_text(PyTypeObject *type);

// What to do with a value that should have been a Tensor: "; modtree.from_torch(...) ..." for a
// tensor of another library, else nothing. `both_ways`: the caller's own could be converted as
// well. Keeps no error.
py::object advice_on(PyObject *value, bool both_ways = false);

// `format` has a %S for the type of the value; the advice follows it.
void raise_not_tensor(PyObject *kind, const char *format, PyObject *value);

// When a tensor of another library is among the arguments of a function that failed without saying
// so, a TypeError that does takes the place of the error, which is its cause. `any_error`: what
// failed computes with each of its arguments; else only for an error that shows the confusion.
void name_foreign_argument(PyObject *name, PyObject *const *args, Py_ssize_t count, bool any_error);

// True for an instance of a tensor class that another library made itself. Leaves no error set.
bool is_foreign_tensor(PyObject *value);

// Broadcasts the shape of `array` into (shape, ndim). False with RuntimeError set.
bool broadcast_into(PyArrayObject *array, npy_intp *shape, int *ndim);

// A meta array for (shape, dtype), or a tuple of them for a list of such pairs.
PyObject *meta_from_spec(PyObject *spec);

// "[2, 3]". New reference.
PyObject *shape_text(PyArrayObject *array);

}  // namespace modtree
