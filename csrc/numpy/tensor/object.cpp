// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/object.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "python/compat.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "tensor/array_view.h"
#include "tensor/autograd/history.h"
#include "tensor/free_tensors.h"
#include "tensor/grad_mode.h"
#include "tensor/methods.h"
#include "tensor/number.h"
#include "tensor/op_errors.h"

namespace modtree {

PyTypeObject *tensor_base_type = nullptr;
PyTypeObject *tensor_type = nullptr;
PyTypeObject *plain_parameter_type = nullptr;

namespace {

PyTypeObject *g_size_type = nullptr;  // modtree.Size
FreeTensors g_free_tensors;

int share_cell(TensorObject *from, TensorObject *to) {
  VersionCell *cell = ensure_cell(from);
  if (cell == nullptr) {
    return -1;
  }
  ++cell->refs;
  release_cell(to->cell);
  to->cell = cell;
  return 0;
}

// Steals `array`, also on failure.
inline PyObject *new_tensor(PyTypeObject *type, PyArrayObject *array, bool is_meta) {
  PyObject *obj = g_free_tensors.take(type);
  if (obj == nullptr && (obj = type->tp_alloc(type, 0)) == nullptr) {
    Py_DECREF(array);
    return nullptr;
  }
  TensorObject *self = as_tensor(obj);
  self->array = array;
  self->is_meta = is_meta;
  return obj;
}

PyArrayObject *empty_array() {
  npy_intp zero = 0;
  return as_array(PyArray_SimpleNew(1, &zero, default_float_num()));
}

PyObject *tensor_tp_new(PyTypeObject *type, PyObject *, PyObject *) {
  PyArrayObject *array = empty_array();
  return array == nullptr ? nullptr : new_tensor(type, array, false);
}

int tensor_tp_traverse(PyObject *obj, visitproc visit, void *arg) {
  TensorObject *self = as_tensor(obj);
  Py_VISIT(Py_TYPE(obj));
  Py_VISIT(self->grad);
  Py_VISIT(self->grad_fn);
  Py_VISIT(self->base);
  if (self->extra != nullptr) {
    Py_VISIT(self->extra->hooks);
    Py_VISIT(self->extra->post_accumulate_hooks);
  }
  Py_VISIT(self->dict);
  return 0;  // an ndarray takes no part in collection
}

// The array stays: a tensor that something still reaches during collection must not crash.
int tensor_tp_clear(PyObject *obj) {
  TensorObject *self = as_tensor(obj);
  Py_CLEAR(self->grad);
  Py_CLEAR(self->grad_fn);
  Py_CLEAR(self->base);
  if (self->extra != nullptr) {
    Py_CLEAR(self->extra->hooks);
    Py_CLEAR(self->extra->post_accumulate_hooks);
  }
  Py_CLEAR(self->dict);
  return 0;
}

// The end of a tensor that holds no other object but its array.
void free_values(PyObject *obj) {
  PyTypeObject *type = Py_TYPE(obj);
  release_cell(as_tensor(obj)->cell);
  Py_XDECREF(as_object(as_tensor(obj)->array));
  if (!g_free_tensors.keep(obj)) {
    type->tp_free(obj);
  }
  Py_DECREF(type);
}

void free_tensor(PyObject *obj) {
  tensor_tp_clear(obj);
  delete as_tensor(obj)->extra;
  free_values(obj);
}

void tensor_tp_dealloc(PyObject *obj) {
  const NativeSection in_section;
  TensorObject *self = as_tensor(obj);
  PyTypeObject *type = Py_TYPE(obj);
  if (type->tp_finalize != nullptr && PyObject_CallFinalizerFromDealloc(obj) < 0) {
    return;  // brought back to life
  }
  PyObject_GC_UnTrack(obj);
  if (self->weakrefs != nullptr) {
    PyObject_ClearWeakRefs(obj);
  }
  if (self->grad == nullptr && self->grad_fn == nullptr && self->dict == nullptr) {
    if (self->base == nullptr && self->extra == nullptr) {
      free_values(obj);
    } else {
      free_tensor(obj);
    }
    return;
  }
  // What it holds may be the head of a long chain of tensors, such as gradients of gradients.
  Py_TRASHCAN_BEGIN(obj, tensor_tp_dealloc) free_tensor(obj);
  Py_TRASHCAN_END
}

Py_hash_t tensor_tp_hash(PyObject *obj) { return hash_pointer(obj); }

PyMemberDef kTensorMembers[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject *make_type(py::handle m) {
  std::vector<PyType_Slot> slots{
      {Py_tp_new, reinterpret_cast<void *>(entry<tensor_tp_new>)},
      {Py_tp_traverse, reinterpret_cast<void *>(tensor_tp_traverse)},
      {Py_tp_clear, reinterpret_cast<void *>(unfailing_entry<tensor_tp_clear>)},
      {Py_tp_dealloc, reinterpret_cast<void *>(tensor_tp_dealloc)},
      {Py_tp_hash, reinterpret_cast<void *>(entry<tensor_tp_hash>)},
      {Py_tp_members, kTensorMembers},
      {Py_tp_methods, tensor_methods()},
      {Py_tp_getset, tensor_getset()},
      {Py_tp_doc, const_cast<char *>("The native part of modtree.Tensor.")},
  };
  add_number_slots(slots);
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"modtree._C.TensorBase", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  return new_type(m, "TensorBase", &spec);
}

}  // namespace

VersionCell *ensure_cell(TensorObject *self) {
  if (self->cell == nullptr) {
    auto *cell = static_cast<VersionCell *>(PyMem_Malloc(sizeof(VersionCell)));
    if (cell == nullptr) {
      PyErr_NoMemory();
      return nullptr;
    }
    cell->refs = 1;
    cell->version = 0;
    self->cell = cell;
  }
  return self->cell;
}

void release_cell(VersionCell *cell) {
  if (cell != nullptr && --cell->refs == 0) {
    PyMem_Free(cell);
  }
}

// A Python class without slots of its own adds nothing that our dealloc would have to release: let
// it skip CPython's generic one.
void use_native_dealloc(PyTypeObject *type) {
  if (type->tp_basicsize == tensor_base_type->tp_basicsize) {
    type->tp_dealloc = tensor_tp_dealloc;
  }
}

PyObject *tensor_from_array(PyTypeObject *type, PyObject *array, bool is_own) {
  if (!PyArray_Check(array)) {
    PyErr_Format(PyExc_TypeError, "expected np.ndarray, got %s", Py_TYPE(array)->tp_name);
    Py_DECREF(array);
    return nullptr;
  }
  PyArrayObject *values = as_array(array);
  DTypeObject *dtype = dtype_of(values);
  bool exact = dtype != nullptr && PyArray_DESCR(values) == dtype->descr;
  if (!exact) {
    // The same kind and size under another type number (long long), or another byte order.
    if (dtype == nullptr &&
        (PyTypeNum_ISNUMBER(PyArray_TYPE(values)) || PyTypeNum_ISUSERDEF(PyArray_TYPE(values)))) {
      dtype = dtype_from_object(reinterpret_cast<PyObject *>(PyArray_DESCR(values)));
      PyErr_Clear();
    }
    if (dtype == nullptr) {
      PyErr_Format(PyExc_TypeError,
                   "can't convert np.ndarray of type %S. The only supported types are: float64, "
                   "float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, "
                   "uint32, uint16, uint8, and bool.",
                   reinterpret_cast<PyObject *>(PyArray_DESCR(values)));
      Py_DECREF(array);
      return nullptr;
    }
    if (PyArray_ISBYTESWAPPED(values)) {
      PyErr_SetString(PyExc_ValueError,
                      "given numpy array has byte order different from the native byte order; "
                      "convert it first: array.astype(array.dtype.newbyteorder('='))");
      Py_DECREF(array);
      return nullptr;
    }
  }
  if (!exact || !is_own || !PyArray_CheckExact(array)) {
    PyObject *view = taken_view(values, dtype->descr);
    Py_DECREF(array);
    if (view == nullptr) {
      return nullptr;
    }
    array = view;
  }
  return new_tensor(type, as_array(array), false);
}

PyObject *wrap_array(PyArrayObject *array, bool is_meta) {
  DTypeObject *dtype = dtype_of(array);
  if (dtype == nullptr || PyArray_DESCR(array) != dtype->descr) {
    return tensor_from_array(tensor_type, as_object(array), true);
  }
  return new_tensor(tensor_type, array, is_meta);
}

PyObject *make_alias(PyTypeObject *type, TensorObject *base) {
  Py_INCREF(base->array);
  PyObject *obj = new_tensor(type, base->array, base->is_meta);
  if (obj != nullptr && share_cell(base, as_tensor(obj)) < 0) {
    Py_CLEAR(obj);
  }
  return obj;
}

namespace {

// np.lib.stride_tricks.as_strided puts an object of its own between the view and its array. New
// reference.
py::object under_stand_in(PyObject *base) {
  auto held = py::reinterpret_borrow<py::object>(base);
  if (std::strcmp(Py_TYPE(base)->tp_name, "DummyArray") != 0) {
    return held;
  }
  auto array = py::reinterpret_steal<py::object>(PyObject_GetAttrString(base, "base"));
  if (!array) {
    PyErr_Clear();
    return held;
  }
  return array;
}

}  // namespace

const void *storage_owner(PyArrayObject *array) {
  py::object held;  // another class of that name may give an array that nobody else has
  for (;;) {
    array = owner_of_memory(array);
    PyObject *base = PyArray_BASE(array);
    if (base == nullptr) {
      return array;
    }
    held = under_stand_in(base);
    if (!PyArray_Check(held.ptr())) {
      return array;
    }
    array = as_array(held.ptr());
  }
}

PyObject *wrap_view(TensorObject *base, PyArrayObject *array) {
  bool shares = base->is_meta || storage_owner(array) == storage_owner(base->array);
  PyObject *obj = wrap_array(array, base->is_meta);
  if (obj != nullptr && shares && share_cell(base, as_tensor(obj)) < 0) {
    Py_CLEAR(obj);
  }
  return obj;
}

PyArrayObject *meta_array(int ndim, const npy_intp *shape, PyArray_Descr *descr) {
  PyArrayObject *cell = as_array(PyArray_Zeros(0, nullptr, (Py_INCREF(descr), descr), 0));
  if (cell == nullptr) {
    return nullptr;
  }
  npy_intp strides[NPY_MAXDIMS] = {};
  Py_INCREF(descr);
  PyObject *view = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides,
                                        PyArray_DATA(cell), 0, nullptr);
  if (view == nullptr) {
    Py_DECREF(cell);
    return nullptr;
  }
  if (PyArray_SetBaseObject(as_array(view), as_object(cell)) < 0) {  // steals cell
    Py_DECREF(view);
    return nullptr;
  }
  return as_array(view);
}

int bump_version(TensorObject *self) {
  VersionCell *cell = ensure_cell(self);
  if (cell == nullptr) {
    return -1;
  }
  ++cell->version;
  return 0;
}

int check_inplace(TensorObject *self, bool others_need_grad) {
  if (!grad_enabled() || !(others_need_grad || needs_grad(self))) {
    return 0;
  }
  if (self->base == nullptr) {
    if (self->requires_grad && self->grad_fn == nullptr) {
      PyErr_SetString(PyExc_RuntimeError,
                      "a leaf Variable that requires grad is being used in an in-place operation. "
                      "Do it under modtree.no_grad(), or on a clone");
      return -1;
    }
    return 0;
  }
  TensorObject *base = as_tensor(self->base);
  if (self->view_origin == ViewOrigin::no_grad) {
    PyErr_SetString(PyExc_RuntimeError,
                    "A view was created in no_grad mode and is being modified inplace with grad "
                    "mode enabled. Make the view "
                    "where gradients are recorded, or change it under modtree.no_grad() too");
    return -1;
  }
  if (refuses_inplace(self)) {
    raise_refused_inplace(self, "is being modified inplace");
    return -1;
  }
  // Either of the two may be what requires grad: a view of a plain tensor can have been made a leaf
  // of its own.
  if (needs_grad(self) && base->grad_fn == nullptr) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "a view of a leaf Variable that requires grad is being used in an in-place operation. "
        "Do it under modtree.no_grad(), or on a view of a clone");
    return -1;
  }
  return 0;
}

bool is_expanded(PyArrayObject *array) {
  for (int i = 0; i < PyArray_NDIM(array); ++i) {
    if (PyArray_STRIDE(array, i) == 0 && PyArray_DIM(array, i) > 1) {
      return PyArray_SIZE(array) > 0;
    }
  }
  return false;
}

int refuse_overlap() {
  PyErr_SetString(PyExc_RuntimeError, "unsupported operation: more than one element of the "
                                      "written-to tensor refers to a single memory "
                                      "location (it was expanded): write into a clone() of it");
  return -1;
}

int check_overlap(TensorObject *self) {
  return !self->is_meta && is_expanded(self->array) ? refuse_overlap() : 0;
}

int swap_array(TensorObject *self, PyObject *other) {
  if (other == nullptr || !is_tensor(other)) {
    if (other == nullptr) {
      PyErr_SetString(PyExc_TypeError, "Variable data has to be a tensor, but got nothing (data "
                                       "cannot be deleted)");
    } else {
      raise_not_tensor(PyExc_TypeError, "Variable data has to be a tensor, but got %S", other);
    }
    return -1;
  }
  TensorObject *source = as_tensor(other);
  if (self->is_meta != source->is_meta) {
    PyErr_Format(PyExc_RuntimeError,
                 "Attempted to call `tensor.data = other`, but the two have incompatible tensor "
                 "type: one is on '%s', the other on '%s'",
                 self->is_meta ? "meta" : "cpu", source->is_meta ? "meta" : "cpu");
    return -1;
  }
  if (self->requires_grad && !is_float_category(dtype_or_none(source->array)->category)) {
    PyErr_SetString(PyExc_RuntimeError, "data set to a tensor that requires gradients must be "
                                        "floating point or complex dtype");
    return -1;
  }
  PyArrayObject *old = self->array;
  Py_INCREF(source->array);
  self->array = source->array;
  release_later(as_object(old));
  return 0;
}

int set_requires_grad(TensorObject *self, bool flag) {
  if (flag && !is_float_category(dtype_or_none(self->array)->category)) {
    PyErr_Format(PyExc_RuntimeError,
                 "only Tensors of floating point dtype can require gradients (this one is %S)",
                 reinterpret_cast<PyObject *>(dtype_or_none(self->array)));
    return -1;
  }
  if (!flag && self->grad_fn != nullptr) {
    PyErr_SetString(PyExc_RuntimeError,
                    "you can only change requires_grad flags of leaf variables. Use "
                    "var_no_grad = var.detach() for a handle outside the graph");
    return -1;
  }
  self->requires_grad = flag;
  return 0;
}

int assign_grad(TensorObject *self, PyObject *value) {
  PyObject *fresh = nullptr;
  if (value != nullptr && value != Py_None) {
    if (!is_tensor(value)) {
      raise_not_tensor(PyExc_TypeError,
                       "assigned grad expected to be a Tensor or None but got grad of type %S",
                       value);
      return -1;
    }
    TensorObject *grad = as_tensor(value);
    if (grad == self) {
      PyErr_SetString(PyExc_RuntimeError, "can't assign Variable as its own grad");
      return -1;
    }
    if (PyArray_TYPE(grad->array) != PyArray_TYPE(self->array)) {
      PyErr_Format(PyExc_RuntimeError,
                   "assigned grad has data of a different type: %S for a tensor of %S",
                   reinterpret_cast<PyObject *>(dtype_or_none(grad->array)),
                   reinterpret_cast<PyObject *>(dtype_or_none(self->array)));
      return -1;
    }
    if (grad->is_meta != self->is_meta) {
      PyErr_SetString(PyExc_RuntimeError, "assigned grad has data located on a different device");
      return -1;
    }
    if (!PyArray_SAMESHAPE(grad->array, self->array)) {
      PyErr_SetString(PyExc_RuntimeError, "assigned grad has data of a different size");
      return -1;
    }
    Py_INCREF(value);
    fresh = value;
  }
  release_later(std::exchange(self->grad, fresh));
  return 0;
}

PyObject *size_of_array(PyArrayObject *array) {
  const int ndim = PyArray_NDIM(array);
  // Copied first: making the tuple may run code that gives the tensor another array.
  npy_intp dims[NPY_MAXDIMS];
  std::copy(PyArray_DIMS(array), PyArray_DIMS(array) + ndim, dims);
  PyObject *size = g_size_type->tp_alloc(g_size_type, ndim);
  if (size == nullptr) {
    return nullptr;
  }
  for (int i = 0; i < ndim; ++i) {
    PyObject *extent = PyLong_FromSsize_t(dims[i]);
    if (extent == nullptr) {
      Py_DECREF(size);
      return nullptr;
    }
    PyTuple_SET_ITEM(size, i, extent);
  }
  return size;
}

void make_tensor_type(py::handle m) {
  tensor_base_type = make_type(m);
  tensor_type = tensor_base_type;
  g_size_type = &PyTuple_Type;
}

void adopt_tensor_class(PyTypeObject *tensor) {
  tensor_type = reinterpret_cast<PyTypeObject *>(Py_NewRef(reinterpret_cast<PyObject *>(tensor)));
  use_native_dealloc(tensor_type);
#if !defined(MODTREE_NO_FREE_LISTS) && !defined(Py_GIL_DISABLED)
  if (tensor_type->tp_basicsize == sizeof(TensorObject)) {
    g_free_tensors.start(tensor_type);
  }
#endif
}

void adopt_size_class(PyTypeObject *size) {
  g_size_type = reinterpret_cast<PyTypeObject *>(Py_NewRef(reinterpret_cast<PyObject *>(size)));
}

}  // namespace modtree
