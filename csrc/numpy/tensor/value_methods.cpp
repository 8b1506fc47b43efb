// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/value_methods.h"

#include <cstring>
#include <vector>

#include "family/family.h"
#include "python/installed.h"
#include "python/slot_guard.h"
#include "tensor/autograd/record.h"
#include "tensor/float_errors.h"
#include "tensor/op_errors.h"
#include "tensor/slot_ops.h"

namespace modtree {

namespace {

// The result of a native method, put on the graph where that is wanted. Steals.
PyObject *recorded_result(int index, TensorObject *self, PyObject *result) {
  if (result == nullptr || !grad_enabled() || !needs_grad(self) ||
      result == reinterpret_cast<PyObject *>(self)) {
    return result;
  }
  PyObject *original = reinterpret_cast<PyObject *>(self);
  const auto held = py::reinterpret_borrow<py::object>(as_object(self->array));
  PyObject *value = held.ptr();
  OpObject *op = slot_op(index);
  if (op == nullptr || record_call(op, &original, &value, 1, 1, nullptr, result) < 0) {
    Py_CLEAR(result);
  }
  return result;
}

// Begins to record an operation that writes `value` into a tensor.
int begin_write(InplaceRecord &recorded, int index, TensorObject *self, PyObject *value) {
  PyObject *originals[2] = {reinterpret_cast<PyObject *>(self), value};
  // Owned: recording may run code that gives a tensor another array.
  const auto target = py::reinterpret_borrow<py::object>(as_object(self->array));
  const auto source = py::reinterpret_borrow<py::object>(
      is_tensor(value) ? as_object(as_tensor(value)->array) : value);
  PyObject *values[2] = {target.ptr(), source.ptr()};
  OpObject *op = slot_op(index);
  return op == nullptr ? -1 : recorded.begin(op, self, originals, values, 2, 2);
}

int copy_array(TensorObject *self, PyArrayObject *source) {
  PyArrayObject *target = self->array;
  Py_INCREF(target);  // CopyInto may let another thread swap the array
  int status = 0;
  {
    SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
    // The real part, but for bools: a number is true if either part is.
    if (PyTypeNum_ISCOMPLEX(PyArray_TYPE(source)) && !PyTypeNum_ISCOMPLEX(PyArray_TYPE(target)) &&
        PyArray_TYPE(target) != NPY_BOOL) {
      py::object real =
          py::reinterpret_steal<py::object>(PyObject_GetAttrString(as_object(source), "real"));
      status = real ? PyArray_CopyInto(target, as_array(real.ptr())) : -1;
    } else {
      status = PyArray_CopyInto(target, source);
    }
  }
  if (status < 0 && PyErr_ExceptionMatches(PyExc_ValueError)) {
    if (!PyArray_ISWRITEABLE(target)) {
      PyErr_SetString(PyExc_RuntimeError, "copy_(): the memory of this tensor is read-only");
    } else {
      py::object a = py::reinterpret_steal<py::object>(shape_text(target));
      py::object b = py::reinterpret_steal<py::object>(shape_text(source));
      PyErr_Format(PyExc_RuntimeError, "copy_(): values of shape %S do not fit into shape %S",
                   b.ptr(), a.ptr());
    }
  }
  Py_DECREF(target);
  return status;
}

// As convert_tensor, not recorded.
PyObject *cast_tensor(TensorObject *self, DTypeObject *dtype, bool to_meta, bool copy) {
  // Owned: a warning runs user code, and NumPy works without the GIL; either may give the tensor
  // another array.
  py::object held = py::reinterpret_borrow<py::object>(as_object(self->array));
  PyArrayObject *array = self->array;
  bool same_dtype = dtype == nullptr || dtype->num == PyArray_TYPE(array);
  if (same_dtype && to_meta == self->is_meta && !copy) {
    Py_INCREF(self);
    return reinterpret_cast<PyObject *>(self);
  }
  if (self->is_meta && !to_meta) {
    PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
    return nullptr;
  }
  PyArray_Descr *descr = same_dtype ? PyArray_DESCR(array) : dtype->descr;
  if (to_meta) {
    PyArrayObject *bare = meta_array(PyArray_NDIM(array), PyArray_DIMS(array), descr);
    return bare == nullptr ? nullptr : wrap_array(bare, true);
  }
  if (same_dtype) {
    PyObject *fresh = PyArray_NewCopy(array, NPY_KEEPORDER);
    return fresh == nullptr ? nullptr : wrap_array(as_array(fresh));
  }
  if (PyTypeNum_ISCOMPLEX(PyArray_TYPE(array)) && dtype->category != DTypeCategory::complex &&
      dtype->category != DTypeCategory::boolean) {
    if (PyErr_WarnEx(PyExc_UserWarning,
                     "Casting complex values to real discards the imaginary part", 1) < 0) {
      return nullptr;
    }
    held = py::reinterpret_steal<py::object>(PyObject_GetAttrString(as_object(array), "real"));
    if (!held) {
      return nullptr;
    }
    array = as_array(held.ptr());
  }
  SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
  Py_INCREF(descr);
  auto fresh =
      py::reinterpret_steal<py::object>(PyArray_NewLikeArray(array, NPY_KEEPORDER, descr, 0));
  if (!fresh || PyArray_CopyInto(as_array(fresh.ptr()), array) < 0) {
    return nullptr;
  }
  return wrap_array(as_array(fresh.release().ptr()));
}

}  // namespace

PyObject *with_arguments(const char *name, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *keywords) {
  if (!need_installed(installed.with_arguments)) {
    return nullptr;
  }
  const Py_ssize_t count = nargs + (keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords));
  auto key = py::reinterpret_steal<py::object>(PyUnicode_InternFromString(name));
  if (!key) {
    return nullptr;
  }
  return slot_guard(static_cast<PyObject *>(nullptr), [&]() -> PyObject * {
    std::vector<PyObject *> values{key.ptr(), self};
    values.insert(values.end(), args, args + count);
    return PyObject_Vectorcall(installed.with_arguments, values.data(),
                               static_cast<size_t>(nargs) + 2, keywords);
  });
}

PyObject *tensor_zero_(PyObject *obj, PyObject *) {
  TensorObject *self = as_tensor(obj);
  InplaceRecord recorded;
  if (check_inplace(self) < 0 || begin_fill(recorded, self) < 0) {
    return nullptr;
  }
  if (!self->is_meta) {
    if (!PyArray_ISWRITEABLE(self->array)) {
      PyErr_SetString(PyExc_RuntimeError, "zero_(): the memory of this tensor is read-only");
      return nullptr;
    }
    if (PyArray_IS_C_CONTIGUOUS(self->array) || PyArray_IS_F_CONTIGUOUS(self->array)) {
      std::memset(PyArray_DATA(self->array), 0, static_cast<size_t>(PyArray_NBYTES(self->array)));
    } else {
      const auto held = py::reinterpret_borrow<py::object>(as_object(self->array));
      py::object zero = py::reinterpret_steal<py::object>(PyLong_FromLong(0));
      if (PyArray_FillWithScalar(as_array(held.ptr()), zero.ptr()) < 0) {
        return nullptr;
      }
    }
  }
  return recorded.finish(self) < 0 ? nullptr : Py_NewRef(obj);
}

PyObject *tensor_copy_(PyObject *obj, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  if (nargs != 1 || keywords != nullptr) {
    return with_arguments("copy_", obj, args, nargs, keywords);
  }
  TensorObject *self = as_tensor(obj);
  const bool from_graph = grad_enabled() && any_needs_grad(args, 1);
  InplaceRecord recorded;
  if (check_inplace(self, from_graph) < 0 || check_overlap(self) < 0) {
    return nullptr;
  }
  // NumPy would drop leading dimensions of size 1.
  if (is_tensor(args[0]) && PyArray_NDIM(as_tensor(args[0])->array) > PyArray_NDIM(self->array)) {
    py::object a = py::reinterpret_steal<py::object>(shape_text(self->array));
    py::object b = py::reinterpret_steal<py::object>(shape_text(as_tensor(args[0])->array));
    if (a && b) {
      PyErr_Format(PyExc_RuntimeError, "copy_(): values of shape %S do not fit into shape %S",
                   b.ptr(), a.ptr());
    }
    return nullptr;
  }
  if (from_graph || (grad_enabled() && needs_grad(self))) {
    if (begin_write(recorded, kCopy, self, args[0]) < 0) {
      return nullptr;
    }
  }
  bool done = copy_values(self, args[0]) == 0 && recorded.attach(self) == 0;
  return done ? Py_NewRef(obj) : nullptr;
}

PyObject *tensor_cast(PyObject *obj, int num) {
  TensorObject *self = as_tensor(obj);
  return convert_tensor(self, dtype_of_num(num), self->is_meta, false);
}

// _convert(dtype or None, device or None, copy): the parsed form of to().
PyObject *tensor_convert(PyObject *obj, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs != 3) {
    PyErr_SetString(PyExc_TypeError, "_convert() takes dtype, device, copy");
    return nullptr;
  }
  TensorObject *self = as_tensor(obj);
  DTypeObject *dtype = nullptr;
  if (args[0] != Py_None && (dtype = dtype_from_object(args[0])) == nullptr) {
    return nullptr;
  }
  int to_meta = args[1] == Py_None ? self->is_meta : device_is_meta(args[1]);
  int copy = to_meta < 0 ? -1 : PyObject_IsTrue(args[2]);
  if (copy < 0) {
    return nullptr;
  }
  return convert_tensor(self, dtype, to_meta == 1, copy == 1);
}

PyObject *tensor_clone(PyObject *obj, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  if (nargs > 0 || keywords != nullptr) {
    return with_arguments("clone", obj, args, nargs, keywords);
  }
  TensorObject *self = as_tensor(obj);
  if (self->is_meta) {
    Py_INCREF(self->array);
    return recorded_result(kClone, self, wrap_array(self->array, true));
  }
  const auto held = py::reinterpret_borrow<py::object>(as_object(self->array));
  PyObject *copy = PyArray_NewCopy(as_array(held.ptr()), NPY_KEEPORDER);
  return recorded_result(kClone, self, copy == nullptr ? nullptr : wrap_array(as_array(copy)));
}

int device_is_meta(PyObject *device) {
  if (device == installed.cpu_device || device == installed.meta_device) {
    return device == installed.meta_device;
  }
  const py::object parsed = call_installed(installed.as_device, device);
  if (!parsed) {
    return -1;
  }
  py::object type = py::reinterpret_steal<py::object>(PyObject_GetAttrString(parsed.ptr(), "type"));
  if (!type || !PyUnicode_Check(type.ptr())) {
    PyErr_SetString(PyExc_TypeError, "expected a modtree.device");
    return -1;
  }
  return PyUnicode_CompareWithASCIIString(type.ptr(), "meta") == 0;
}

int begin_fill(InplaceRecord &recorded, TensorObject *self, PyObject *value) {
  return begin_write(recorded, kFill, self, value);
}

bool copy_memory(TensorObject *self, TensorObject *source) {
  PyArrayObject *target = self->array, *values = source->array;
  if (self->is_meta || source->is_meta || PyArray_TYPE(target) != PyArray_TYPE(values) ||
      !PyArray_ISWRITEABLE(target) || !PyArray_IS_C_CONTIGUOUS(target) ||
      !PyArray_IS_C_CONTIGUOUS(values) || !equal_shapes(target, values)) {
    return false;
  }
  if (!ensure_cell(self)) {
    PyErr_Clear();  // another way of copying fails on it again
    return false;
  }
  std::size_t bytes = static_cast<std::size_t>(PyArray_ITEMSIZE(target));
  for (int i = 0; i < PyArray_NDIM(target); ++i) {
    bytes *= static_cast<std::size_t>(PyArray_DIM(target, i));
  }
  std::memmove(PyArray_DATA(target), PyArray_DATA(values), bytes);
  ++self->cell->version;
  return true;
}

int copy_values(TensorObject *self, PyObject *source) {
  if (is_tensor(source)) {
    TensorObject *other = as_tensor(source);
    PyArrayObject *target = self->array;
    if (other->is_meta || self->is_meta) {
      if (other->is_meta && !self->is_meta) {
        PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
        return -1;
      }
      npy_intp shape[NPY_MAXDIMS];
      int ndim = 0;
      if (!broadcast_into(other->array, shape, &ndim) || !broadcast_into(target, shape, &ndim)) {
        return -1;
      }
      return bump_version(self);
    }
    if (copy_memory(self, other)) {
      return 0;
    }
    py::object held = py::reinterpret_borrow<py::object>(as_object(other->array));
    return copy_array(self, other->array) < 0 ? -1 : bump_version(self);
  }
  py::object plain = py::reinterpret_borrow<py::object>(source);
  PyArray_Descr *wanted = nullptr;
  if (PyLong_CheckExact(source)) {
    wanted = PyArray_DescrFromType(NPY_INT64);  // larger ones are an OverflowError
  } else if (!PyArray_Check(source) && !PyArray_CheckScalar(source) && !PyBool_Check(source) &&
             !PyFloat_CheckExact(source) && !PyComplex_CheckExact(source)) {
    TensorFamily *family;
    int found = family_of(source, &family);
    if (found == 0) {
      PyErr_Format(PyExc_TypeError, "copy_(): argument 'other' must be Tensor, not %s",
                   Py_TYPE(source)->tp_name);
    }
    if (found <= 0) {
      return -1;
    }
    int is_meta = family->is_meta(source);
    if (is_meta > 0 && !self->is_meta) {
      PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
    }
    if (is_meta != 0) {
      return is_meta > 0 && self->is_meta ? bump_version(self) : -1;
    }
    plain = py::reinterpret_steal<py::object>(
        PyObject_CallMethod(family->object.ptr(), "to_numpy", "O", source));
    if (!plain) {
      return -1;
    }
  }
  py::object array =
      py::reinterpret_steal<py::object>(PyArray_FromAny(plain.ptr(), wanted, 0, 0, 0, nullptr));
  if (!array) {
    return -1;
  }
  if (self->is_meta) {
    return bump_version(self);
  }
  return copy_array(self, as_array(array.ptr())) < 0 ? -1 : bump_version(self);
}

PyObject *convert_tensor(TensorObject *self, DTypeObject *dtype, bool to_meta, bool copy) {
  return recorded_result(kConvert, self, cast_tensor(self, dtype, to_meta, copy));
}

}  // namespace modtree
