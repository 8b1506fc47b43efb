// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/methods.h"

#include <cstring>
#include <vector>

#include "family/family.h"
#include "python/installed.h"
#include "python/slot_guard.h"
#include "tensor/autograd/backward.h"
#include "tensor/autograd/history.h"
#include "tensor/autograd/record.h"
#include "tensor/float_errors.h"
#include "tensor/grad_methods.h"
#include "tensor/op_errors.h"
#include "tensor/slot_ops.h"

namespace modtree {

namespace {

PyObject *dtype_object(TensorObject *self) {
  return reinterpret_cast<PyObject *>(dtype_of(self->array));
}

PyObject *new_ref(PyObject *obj) {
  Py_INCREF(obj);
  return obj;
}

bool all_same_memory_order(PyArrayObject *a, PyArrayObject *b) {
  return PyArray_IS_C_CONTIGUOUS(a) && PyArray_IS_C_CONTIGUOUS(b) && PyArray_SAMESHAPE(a, b);
}

PyObject *tensor_detach(PyObject *self, PyObject *) { return tensor_alias(as_tensor(self)); }

PyObject *tensor_size(PyObject *obj, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs == 0 || (nargs == 1 && args[0] == Py_None)) {
    return size_of_array(as_tensor(obj)->array);
  }
  if (nargs > 1) {
    PyErr_Format(PyExc_TypeError, "size() takes at most 1 argument, got %zd", nargs);
    return nullptr;
  }
  Py_ssize_t dim = PyNumber_AsSsize_t(args[0], PyExc_IndexError);
  if (dim == -1 && PyErr_Occurred()) {
    return nullptr;
  }
  PyArrayObject *array =
      as_tensor(obj)->array;  // not before: an __index__ may have given the tensor another one
  Py_ssize_t ndim = PyArray_NDIM(array);
  if (dim < -ndim || dim >= ndim) {
    PyErr_Format(PyExc_IndexError,
                 "Dimension out of range (expected to be in range of [%zd, %zd], but got %zd)",
                 -std::max<Py_ssize_t>(ndim, 1), std::max<Py_ssize_t>(ndim, 1) - 1, dim);
    return nullptr;
  }
  return PyLong_FromSsize_t(PyArray_DIM(array, static_cast<int>(dim < 0 ? dim + ndim : dim)));
}

PyObject *tensor_dim(PyObject *self, PyObject *) {
  return PyLong_FromLong(PyArray_NDIM(as_tensor(self)->array));
}

PyObject *tensor_numel(PyObject *self, PyObject *) {
  return PyLong_FromSsize_t(PyArray_SIZE(as_tensor(self)->array));
}

PyObject *tensor_element_size(PyObject *self, PyObject *) {
  return PyLong_FromSsize_t(PyArray_ITEMSIZE(as_tensor(self)->array));
}

PyObject *tensor_is_floating_point(PyObject *self, PyObject *) {
  return PyBool_FromLong(PyTypeNum_ISFLOAT(PyArray_TYPE(as_tensor(self)->array)));
}

PyObject *tensor_is_complex(PyObject *self, PyObject *) {
  return PyBool_FromLong(PyTypeNum_ISCOMPLEX(PyArray_TYPE(as_tensor(self)->array)));
}

// Arguments that are rare, memory formats mostly: modtree.memory_formats checks them, and calls the
// method of that name without them.
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

PyObject *tensor_is_contiguous(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *keywords) {
  if (nargs > 0 || keywords != nullptr) {
    return with_arguments("is_contiguous", self, args, nargs, keywords);
  }
  TensorObject *tensor = as_tensor(self);
  return PyBool_FromLong(tensor->is_meta || PyArray_IS_C_CONTIGUOUS(tensor->array));
}

PyObject *tensor_data_ptr(PyObject *self, PyObject *) {
  TensorObject *tensor = as_tensor(self);
  return PyLong_FromVoidPtr(tensor->is_meta ? nullptr : PyArray_DATA(tensor->array));
}

PyObject *tensor_item(PyObject *obj, PyObject *) {
  TensorObject *self = as_tensor(obj);
  if (self->is_meta) {
    PyErr_SetString(PyExc_RuntimeError, "item() cannot be called on meta tensors: no values");
    return nullptr;
  }
  if (PyArray_SIZE(self->array) != 1) {
    PyErr_Format(PyExc_RuntimeError, "a Tensor with %zd elements cannot be converted to Scalar",
                 PyArray_SIZE(self->array));
    return nullptr;
  }
  return PyArray_GETITEM(self->array, PyArray_BYTES(self->array));
}

PyObject *tensor_requires_grad_(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames) {
  Py_ssize_t total = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
  PyObject *flag = total == 0 ? Py_True : args[0];
  if (total > 1 ||
      (kwnames != nullptr && total == 1 &&
       PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "requires_grad") != 0)) {
    PyErr_SetString(PyExc_TypeError, "requires_grad_() takes one argument: requires_grad");
    return nullptr;
  }
  if (!PyBool_Check(flag)) {
    PyErr_Format(PyExc_TypeError, "requires_grad_(): argument 'requires_grad' must be bool, not %s",
                 Py_TYPE(flag)->tp_name);
    return nullptr;
  }
  return set_requires_grad(as_tensor(self), flag == Py_True) < 0 ? nullptr : new_ref(self);
}

PyObject *tensor_detach_(PyObject *obj, PyObject *) {
  TensorObject *self = as_tensor(obj);
  return drop_history(self) < 0 ? nullptr : new_ref(obj);
}

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
  return recorded.finish(self) < 0 ? nullptr : new_ref(obj);
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
  return done ? new_ref(obj) : nullptr;
}

PyObject *tensor_cast(PyObject *obj, int num) {
  TensorObject *self = as_tensor(obj);
  return convert_tensor(self, dtype_of_num(num), self->is_meta, false);
}

const char *cast_name(int num) {
  switch (num) {
    case NPY_FLOAT32:
      return "float";
    case NPY_FLOAT64:
      return "double";
    case NPY_FLOAT16:
      return "half";
    case NPY_INT64:
      return "long";
    case NPY_INT32:
      return "int";
    case NPY_INT16:
      return "short";
    case NPY_INT8:
      return "char";
    case NPY_UINT8:
      return "byte";
    case NPY_BOOL:
      return "bool";
    case NPY_COMPLEX64:
      return "cfloat";
    default:
      return "cdouble";
  }
}

template <int kNum>
PyObject *tensor_cast_to(PyObject *obj, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *keywords) {
  return nargs > 0 || keywords != nullptr
             ? with_arguments(cast_name(kNum), obj, args, nargs, keywords)
             : tensor_cast(obj, kNum);
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

PyObject *get_shape(PyObject *self, void *) { return size_of_array(as_tensor(self)->array); }
PyObject *get_dtype(PyObject *self, void *) { return new_ref(dtype_object(as_tensor(self))); }
PyObject *get_ndim(PyObject *self, void *) { return tensor_dim(self, nullptr); }
PyObject *get_array(PyObject *self, void *) { return new_ref(as_object(as_tensor(self)->array)); }
PyObject *get_is_meta(PyObject *self, void *) { return PyBool_FromLong(as_tensor(self)->is_meta); }
PyObject *get_false(PyObject *, void *) { Py_RETURN_FALSE; }

PyObject *get_device(PyObject *self, void *) {
  PyObject *device = as_tensor(self)->is_meta ? installed.meta_device : installed.cpu_device;
  return Py_XNewRef(need_installed(device));
}

// A handle with a version of its own: changes through `data` are not seen by a graph.
PyObject *get_data(PyObject *self, void *) {
  TensorObject *tensor = as_tensor(self);
  Py_INCREF(tensor->array);
  return wrap_array(tensor->array, tensor->is_meta);
}
int put_data(PyObject *self, PyObject *value, void *) { return swap_array(as_tensor(self), value); }

PyObject *get_version(PyObject *self, void *) {
  VersionCell *cell = as_tensor(self)->cell;
  return PyLong_FromUnsignedLong(cell == nullptr ? 0 : cell->version);
}

template <typename F>
PyCFunction as_method(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

constexpr int kFast = METH_FASTCALL;
constexpr int kFastKw = METH_FASTCALL | METH_KEYWORDS;

PyMethodDef kMethods[] = {
    {"detach", tensor_detach, METH_NOARGS,
     "detach($self)\n--\n\nA new handle of the same memory that needs no gradient."},
    {"detach_", tensor_detach_, METH_NOARGS,
     "detach_($self)\n--\n\nCuts this tensor off its graph, in place."},
    {"size", as_method(tensor_size), kFast,
     "size($self, dim=None, /)\n--\n\nThe shape, or the extent of one dimension."},
    {"dim", tensor_dim, METH_NOARGS, "dim($self)\n--\n\nNumber of dimensions."},
    {"ndimension", tensor_dim, METH_NOARGS, "ndimension($self)\n--\n\nThe same as dim()."},
    {"numel", tensor_numel, METH_NOARGS, "numel($self)\n--\n\nNumber of elements."},
    {"nelement", tensor_numel, METH_NOARGS, "nelement($self)\n--\n\nThe same as numel()."},
    {"element_size", tensor_element_size, METH_NOARGS,
     "element_size($self)\n--\n\nBytes of one element."},
    {"is_floating_point", tensor_is_floating_point, METH_NOARGS,
     "is_floating_point($self)\n--\n\nIs the dtype a floating one (not complex)?"},
    {"is_complex", tensor_is_complex, METH_NOARGS,
     "is_complex($self)\n--\n\nIs the dtype complex?"},
    {"is_contiguous", as_method(tensor_is_contiguous), kFastKw,
     "is_contiguous($self, *, memory_format=None)\n--\n\n"
     "Is the memory in C order, or in that of the format, without gaps?"},
    {"data_ptr", tensor_data_ptr, METH_NOARGS,
     "data_ptr($self)\n--\n\nAddress of the first element."},
    {"item", tensor_item, METH_NOARGS, "item($self)\n--\n\nThe only element as a Python number."},
    {"requires_grad_", as_method(tensor_requires_grad_), kFastKw,
     "requires_grad_($self, requires_grad=True)\n--\n\nSets requires_grad and returns self."},
    {"zero_", tensor_zero_, METH_NOARGS, "zero_($self)\n--\n\nFills with zeros, in place."},
    {"copy_", as_method(tensor_copy_), kFastKw,
     "copy_($self, other, non_blocking=False)\n--\n\nTakes over the values of src, converted."},
    {"clone", as_method(tensor_clone), kFastKw,
     "clone($self, *, memory_format=None)\n--\n\nA copy with memory of its own."},
    {"float", as_method(tensor_cast_to<NPY_FLOAT32>), kFastKw,
     "float($self, memory_format=None)\n--\n\nAs float32."},
    {"double", as_method(tensor_cast_to<NPY_FLOAT64>), kFastKw,
     "double($self, memory_format=None)\n--\n\nAs float64."},
    {"half", as_method(tensor_cast_to<NPY_FLOAT16>), kFastKw,
     "half($self, memory_format=None)\n--\n\nAs float16."},
    {"long", as_method(tensor_cast_to<NPY_INT64>), kFastKw,
     "long($self, memory_format=None)\n--\n\nAs int64."},
    {"int", as_method(tensor_cast_to<NPY_INT32>), kFastKw,
     "int($self, memory_format=None)\n--\n\nAs int32."},
    {"short", as_method(tensor_cast_to<NPY_INT16>), kFastKw,
     "short($self, memory_format=None)\n--\n\nAs int16."},
    {"char", as_method(tensor_cast_to<NPY_INT8>), kFastKw,
     "char($self, memory_format=None)\n--\n\nAs int8."},
    {"byte", as_method(tensor_cast_to<NPY_UINT8>), kFastKw,
     "byte($self, memory_format=None)\n--\n\nAs uint8."},
    {"bool", as_method(tensor_cast_to<NPY_BOOL>), kFastKw,
     "bool($self, memory_format=None)\n--\n\nAs bool."},
    {"cfloat", as_method(tensor_cast_to<NPY_COMPLEX64>), kFastKw,
     "cfloat($self, memory_format=None)\n--\n\nAs complex64."},
    {"cdouble", as_method(tensor_cast_to<NPY_COMPLEX128>), kFastKw,
     "cdouble($self, memory_format=None)\n--\n\nAs complex128."},
    {"backward", as_method(tensor_backward), METH_VARARGS | METH_KEYWORDS,
     "backward($self, gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\n"
     "Adds the gradients of this tensor, weighted by `gradient` (1 for a tensor of one element), "
     "to the grad of the leaves it was "
     "computed from, or of `inputs` only."},
    {"retain_grad", tensor_retain_grad, METH_NOARGS,
     "retain_grad($self)\n--\n\nKeeps the gradient of a tensor that is not a leaf in its grad."},
    {"_is_view", tensor_is_view, METH_NOARGS, nullptr},
    {"_hook_table", tensor_hook_table, METH_NOARGS, nullptr},
    {"_post_accumulate_table", tensor_post_accumulate_table, METH_NOARGS, nullptr},
    {"_convert", as_method(tensor_convert), kFast, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kGetSet[] = {
    {"shape", get_shape, nullptr, "The extents, a modtree.Size.", nullptr},
    {"dtype", get_dtype, nullptr, "The type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the values are: 'cpu', or 'meta' for nowhere.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"is_meta", get_is_meta, nullptr, "Has it no values?", nullptr},
    {"is_cuda", get_false, nullptr, nullptr, nullptr},
    {"is_sparse", get_false, nullptr, nullptr, nullptr},
    {"is_quantized", get_false, nullptr, nullptr, nullptr},
    {"is_mps", get_false, nullptr, nullptr, nullptr},
    {"requires_grad", get_requires_grad, put_requires_grad, "Are gradients wanted for this tensor?",
     nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Was it not made by a recorded operation?", nullptr},
    {"grad", get_grad, put_grad, "The gradient, or None.", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The operation that made it, or None.", nullptr},
    {"output_nr", get_output_nr, nullptr, "Which output of grad_fn it is.", nullptr},
    {"retains_grad", get_retains_grad, nullptr, "Is the gradient of this non-leaf kept?", nullptr},
    {"_base", get_base, nullptr, "The tensor that this one is a view of, or None.", nullptr},
    {"data", get_data, put_data, "The same memory without gradients; may be replaced.", nullptr},
    {"_version", get_version, nullptr, "Counts changes in place.", nullptr},
    {"_array", get_array, nullptr, "The ndarray inside.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

int copy_array(TensorObject *self, PyArrayObject *source) {
  PyArrayObject *target = self->array;
  Py_INCREF(target);  // CopyInto may let another thread swap the payload
  int status = 0;
  {
    SilenceFloatErrors silence(SilenceFloatErrors::Work::native);
    if (PyTypeNum_ISCOMPLEX(PyArray_TYPE(source)) && !PyTypeNum_ISCOMPLEX(PyArray_TYPE(target))) {
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

PyMethodDef *tensor_methods() { return kMethods; }
PyGetSetDef *tensor_getset() { return kGetSet; }

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
    if (PyArray_TYPE(target) == PyArray_TYPE(other->array) &&
        all_same_memory_order(target, other->array) && PyArray_ISWRITEABLE(target)) {
      std::memmove(PyArray_DATA(target), PyArray_DATA(other->array),
                   static_cast<size_t>(PyArray_NBYTES(target)));
      return bump_version(self);
    }
    py::object held = py::reinterpret_borrow<py::object>(as_object(other->array));
    return copy_array(self, other->array) < 0 ? -1 : bump_version(self);
  }
  py::object plain = py::reinterpret_borrow<py::object>(source);
  if (!PyArray_Check(source) && !PyArray_CheckScalar(source)) {
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
      py::reinterpret_steal<py::object>(PyArray_FromAny(plain.ptr(), nullptr, 0, 0, 0, nullptr));
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
