// SPDX-License-Identifier: BSD-3-Clause
// The tensor object: an ndarray, flags, and what views share.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace modtree {

// Counts in-place changes; one cell is shared by a tensor, its views and its detached handles.
struct VersionCell {
  std::uint32_t refs;
  std::uint32_t version;
};

// Invariants: `array` is set from tp_new on and is exactly np.ndarray of a supported dtype in native byte order. A meta tensor's array is a
// read-only view of one element with all strides 0.
struct TensorObject {
  PyObject_HEAD
  PyArrayObject *array;  // owned
  PyObject *grad;        // owned Tensor, or null
  PyObject *grad_fn;     // owned; null: nothing records operations yet
  VersionCell *cell;     // shared; null: no other handle, never changed in place
  PyObject *dict;        // made on the first attribute
  PyObject *weakrefs;
  bool requires_grad;
  bool is_meta;
  bool retains_grad;
};

extern PyTypeObject *tensor_base_type;
// modtree.Tensor, the Python class; set when modtree.tensor is imported. Operations make objects of exactly this type.
extern PyTypeObject *tensor_type;

inline bool is_tensor(PyObject *obj) {
  return Py_TYPE(obj) == tensor_type || PyObject_TypeCheck(obj, tensor_base_type);
}
inline TensorObject *as_tensor(PyObject *obj) { return reinterpret_cast<TensorObject *>(obj); }
inline PyObject *as_object(PyArrayObject *array) { return reinterpret_cast<PyObject *>(array); }
inline PyArrayObject *as_array(PyObject *obj) { return reinterpret_cast<PyArrayObject *>(obj); }

// A new tensor of `type` (a subclass of TensorBase) that steals `array`: any ndarray of a supported dtype; other byte orders
// and subclasses are converted. Null with TypeError for other dtypes.
PyObject *tensor_from_array(PyTypeObject *type, PyObject *array);

// The same for a plain Tensor whose array is known to fulfil the invariant: the fast path of operations. Steals.
PyObject *wrap_array(PyArrayObject *array, bool is_meta = false);

// A new tensor of `type` over the same array that shares the version cell.
PyObject *make_alias(PyTypeObject *type, TensorObject *base);
inline PyObject *tensor_alias(TensorObject *base) { return make_alias(tensor_type, base); }

// A plain tensor for a result array (stolen) that views the memory of `base`: shares the version cell if it really does.
PyObject *wrap_view(TensorObject *base, PyArrayObject *array);

// The ndarray that owns (or imported) the memory of this one. Borrowed.
PyArrayObject *storage_owner(PyArrayObject *array);

// A zero-stride array for a meta tensor. New reference.
PyArrayObject *meta_array(int ndim, const npy_intp *shape, PyArray_Descr *descr);

// The tensor was changed in place.
int bump_version(TensorObject *self);
// Raises when a leaf that requires grad would be changed in place while operations are recorded.
int check_inplace(TensorObject *self);

// tensor.data = other: the handle takes the array of `other`.
int swap_array(TensorObject *self, PyObject *other);
int set_requires_grad(TensorObject *self, bool flag);
int assign_grad(TensorObject *self, PyObject *value);

// A modtree.Size. New reference.
PyObject *size_of_array(PyArrayObject *array);

// For a Python subclass of ours: frees its instances without CPython's generic detour.
void use_native_dealloc(PyTypeObject *type);

void bind_object(py::module_ &m);

}  // namespace modtree
