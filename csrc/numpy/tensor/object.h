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

struct LeafExtra;

// How a view came to be, which decides whether it may be written while operations are recorded.
enum class ViewOrigin : unsigned char {
  single,
  of_function,  // of a function whose derivative is not that of a view
  one_of_many,  // of an operation that returns several views
  no_grad,      // while nothing was recorded
};

// Invariants: `array` is set from tp_new on and is exactly np.ndarray of a supported dtype in
// native byte order, an object that no user code holds (tensor/array_view.h). A meta tensor's array
// is a read-only view of one element with all strides 0.
struct TensorObject {
  PyObject_HEAD PyArrayObject *array;  // owned
  PyObject *grad;                      // owned Tensor, or null
  PyObject *grad_fn;                   // owned Node; null: a leaf
  PyObject *base;     // owned Tensor whose memory this one views (never a view itself), or null
  LeafExtra *extra;   // owned, or null
  VersionCell *cell;  // shared; null: no other handle, never changed in place
  PyObject *dict;     // made on the first attribute
  PyObject *weakrefs;
  bool requires_grad;
  bool is_meta;
  bool retains_grad;
  ViewOrigin view_origin;
  std::uint32_t output_nr;     // which output of grad_fn it is
  std::uint32_t view_version;  // of a view: the version its grad_fn belongs to
  // Makes it larger than a module. CPython's allocator puts objects of one size side by side, and a
  // walk over modules would bring the tensors between them into the cache.
  void *padding[2];
};

extern PyTypeObject *tensor_base_type;
// modtree.Tensor, the Python class; set when modtree.numpy.tensor.tensor is imported. Operations
// make objects of exactly this type.
extern PyTypeObject *tensor_type;
// modtree.nn.Parameter; set when that is installed. Operations on it take no detour.
extern PyTypeObject *plain_parameter_type;

inline bool is_tensor(PyObject *obj) {
  return Py_TYPE(obj) == tensor_type || PyObject_TypeCheck(obj, tensor_base_type);
}
inline TensorObject *as_tensor(PyObject *obj) { return reinterpret_cast<TensorObject *>(obj); }
inline bool equal_shapes(PyArrayObject *a, PyArrayObject *b) {
  if (PyArray_NDIM(a) != PyArray_NDIM(b)) {
    return false;
  }
  // A loop: the shapes are short, and std::equal() calls memcmp().
  for (int i = 0; i < PyArray_NDIM(a); ++i) {
    if (PyArray_DIM(a, i) != PyArray_DIM(b, i)) {
      return false;
    }
  }
  return true;
}
// True if operations on it have to be recorded. A view does what its base does.
inline bool needs_grad(TensorObject *tensor) {
  return tensor->requires_grad ||
         (tensor->base != nullptr && as_tensor(tensor->base)->requires_grad);
}
inline PyObject *as_object(PyArrayObject *array) { return reinterpret_cast<PyObject *>(array); }
inline PyArrayObject *as_array(PyObject *obj) { return reinterpret_cast<PyArrayObject *>(obj); }

// A new tensor of `type` (a subclass of TensorBase) over an ndarray of a supported dtype; steals
// `array`. `is_own`: no user code holds the array object, and the tensor may. Null with TypeError
// for other dtypes, with ValueError for another byte order.
PyObject *tensor_from_array(PyTypeObject *type, PyObject *array, bool is_own);

// The same for a plain Tensor whose array is known to fulfil the invariant: the fast path of
// operations. Steals.
PyObject *wrap_array(PyArrayObject *array, bool is_meta = false);

// A new tensor of `type` over the same array that shares the version cell.
PyObject *make_alias(PyTypeObject *type, TensorObject *base);
inline PyObject *tensor_alias(TensorObject *base) { return make_alias(tensor_type, base); }

// A plain tensor for a result array (stolen) that views the memory of `base`: shares the version
// cell if it really does.
PyObject *wrap_view(TensorObject *base, PyArrayObject *array);

// The address of the ndarray that owns (or imported) the memory of this one, to be compared only.
const void *storage_owner(PyArrayObject *array);

// A zero-stride array for a meta tensor. New reference.
PyArrayObject *meta_array(int ndim, const npy_intp *shape, PyArray_Descr *descr);

VersionCell *ensure_cell(TensorObject *self);
void release_cell(VersionCell *cell);

// The tensor was changed in place.
int bump_version(TensorObject *self);
// Raises when the tensor may not be changed in place while operations are recorded: a leaf that
// requires grad, some views.
int check_inplace(TensorObject *self, bool others_need_grad = false);

// Raises when several elements share memory (expand), so that writing one writes others.
int check_overlap(TensorObject *self);
bool is_expanded(PyArrayObject *array);  // true if several of its elements share one in memory
int refuse_overlap();                    // -1 with RuntimeError

// tensor.data = other: the handle takes the array of `other`.
int swap_array(TensorObject *self, PyObject *other);
int set_requires_grad(TensorObject *self, bool flag);
int assign_grad(TensorObject *self, PyObject *value);

// A modtree.Size. New reference.
PyObject *size_of_array(PyArrayObject *array);

// For a Python subclass of ours: frees its instances without CPython's generic detour.
void use_native_dealloc(PyTypeObject *type);

void make_tensor_type(py::handle m);

// The Python classes, once they are there: subclasses of TensorBase and of tuple, which the caller
// has checked.
void adopt_tensor_class(PyTypeObject *tensor);
void adopt_size_class(PyTypeObject *size);

}  // namespace modtree
