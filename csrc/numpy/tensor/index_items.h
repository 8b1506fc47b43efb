// SPDX-License-Identifier: BSD-3-Clause
// The items of an index, as NumPy takes them.
#pragma once

#include "tensor/object.h"

namespace modtree {

// The array of a tensor, or the array itself; null for other items. Borrowed.
PyArrayObject *array_of_item(PyObject *item);

// A mask, or a bool, which takes no dimension.
bool is_mask(PyObject *item);

// An array of indices, a mask, or what NumPy makes one of.
bool is_advanced(PyObject *item);

// The index of a tensor as a tuple, with a final Ellipsis if asked, so that NumPy answers with a
// view (never a scalar) whatever is selected. Null on error. May run Python code.
py::object full_index(TensorObject *self, PyObject *index, bool add_ellipsis);

// torch applies integers before index arrays, so that they do not count as index arrays themselves,
// which would move the result's dimensions. Splits such a mixed index into a basic one and one for
// what that leaves. False: not mixed, or an error is set.
bool split_index(PyObject *full, py::object &basic, py::object &rest);

}  // namespace modtree
