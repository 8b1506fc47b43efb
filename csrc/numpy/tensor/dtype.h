// SPDX-License-Identifier: BSD-3-Clause
// modtree.dtype: one immortal object per supported NumPy dtype, under torch's names.
#pragma once

#include "tensor/numpy_api.h"

namespace modtree {

namespace py = pybind11;

// Order matters: a higher category wins in type promotion.
enum class DTypeCategory : unsigned char { boolean, integral, floating, complex };

struct DTypeObject {
  PyObject_HEAD PyArray_Descr *descr;  // owned
  PyObject *name;                      // owned str, "float32"
  PyObject *type_name;                 // owned str, "FloatTensor"
  int num;                             // NumPy's type number, canonical (one per size)
  DTypeCategory category;
  bool is_signed;
};

extern PyTypeObject *dtype_type;

// Borrowed; null without an error when NumPy's type number has no dtype here.
DTypeObject *dtype_of_num(int type_num);
inline DTypeObject *dtype_of(PyArrayObject *array) { return dtype_of_num(PyArray_TYPE(array)); }

// The same of an array of a tensor; where the array was given another dtype in place (`_array` is
// there to be read), a placeholder, whose category is not computed with.
DTypeObject *dtype_or_none(PyArrayObject *array);

// True if there is a dtype of ml_dtypes (bfloat16, float8) that arrays may have.
extern bool any_stored_dtype;

// Borrowed dtype for a modtree.dtype, a NumPy dtype or scalar type, a Python type, or a dtype of
// another library that is named like one of ours ("torch.float32"); null with TypeError set.
DTypeObject *dtype_from_object(PyObject *obj);

// The number of the default floating dtype and of the complex dtype of the same precision.
int default_float_num();
int default_complex_num();

inline bool is_float_category(DTypeCategory c) { return c >= DTypeCategory::floating; }

// torch's name of a scalar type in messages: "Float", "Long".
const char *scalar_type_name(int type_num);

// Makes the type and its objects: `dtype`, and `_dtypes`, a dict from every public name.
void make_dtypes(py::handle m);

// Throws error_already_set for anything but a floating dtype.
void set_default_dtype(py::handle obj);

}  // namespace modtree
