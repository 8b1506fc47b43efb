// SPDX-License-Identifier: BSD-3-Clause
// The border between the arrays of tensors and those of user code. An ndarray can be given another
// shape, strides, dtype or flags in place, so neither side holds an array object of the other: what
// goes out and what comes in is a view of its own over the same memory.
#pragma once

#include "tensor/numpy_api.h"

namespace modtree {

namespace py = pybind11;

// True for an ndarray or an instance of a subclass. Quick for other objects: numbers, slices and
// most others lack a buffer.
inline bool is_ndarray(PyObject *obj) {
  return Py_TYPE(obj)->tp_as_buffer != nullptr && PyArray_Check(obj);
}

// An ndarray for user code over the memory of an array of ours. Its base keeps the memory and shows
// nothing: `view.base` leads to no array. New reference, null on error.
PyObject *shown_view(PyArrayObject *array);

// An object with a buffer of the bytes of a contiguous array, for less than a view. No attribute
// leads to the array. New reference, null on error.
PyObject *shown_bytes(PyArrayObject *array);

// An ndarray of ours over the memory of an array of user code, of dtype `descr`, which has the size
// of the array's (that one without). As long as it lives, NumPy does not resize the memory. New
// reference, null on error.
PyObject *taken_view(PyArrayObject *array, PyArray_Descr *descr = nullptr);

// The array that such a view is over; borrowed, null for any other base.
PyArrayObject *array_under(PyObject *base);

// The array that owns (or imported) the memory of this one. Borrowed from it.
PyArrayObject *owner_of_memory(PyArrayObject *array);

void make_array_view_type(py::handle m);

}  // namespace modtree
