// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/subscript.h"

#include "python/native_section.h"
#include "tensor/array_view.h"
#include "tensor/autograd/record.h"
#include "tensor/fitted.h"
#include "tensor/index_items.h"
#include "tensor/op_errors.h"
#include "tensor/override.h"
#include "tensor/slot_ops.h"

namespace modtree {

namespace {

// Which elements a meta tensor chooses is not known; how many a meta tensor of integers chooses is.
bool check_meta_index(TensorObject *self, PyObject *full) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(full); ++i) {
    PyObject *item = PyTuple_GET_ITEM(full, i);
    if (is_tensor(item) && as_tensor(item)->is_meta &&
        (!self->is_meta || PyArray_TYPE(as_tensor(item)->array) == NPY_BOOL)) {
      PyErr_SetString(PyExc_NotImplementedError,
                      "a tensor on 'meta' is no index: it has no values that say which elements");
      return false;
    }
  }
  return true;
}

}  // namespace

namespace {

bool getitem_override(PyObject *obj, PyObject *index, PyObject **result) {
  PyObject *given[2] = {obj, index};
  return call_operator_override("__getitem__", given, 2, result);
}

}  // namespace

PyObject *mp_subscript(PyObject *obj, PyObject *index) {
  PyObject *result;
  if (is_overridden(obj, index) && getitem_override(obj, index, &result)) {
    return result;
  }
  PyArrayObject *array = as_tensor(obj)->array;
  if (PyArray_NDIM(array) == 0 && PyLong_CheckExact(index)) {
    PyErr_SetString(PyExc_IndexError,
                    "invalid index of a 0-dim tensor. Use `tensor.item()` to get its value");
    return nullptr;
  }
  py::object full = full_index(as_tensor(obj), index, true);
  if (!full || !check_meta_index(as_tensor(obj), full.ptr())) {
    return nullptr;
  }
  py::object basic, rest;
  if (split_index(full.ptr(), basic, rest)) {
    PyObject *first[2] = {obj, basic.ptr()};
    py::object view = py::reinterpret_steal<py::object>(call_slot(kGetItem, first, 2));
    PyObject *second[2] = {view.ptr(), rest.ptr()};
    return view ? call_slot(kGetItem, second, 2) : nullptr;
  }
  PyObject *args[2] = {obj, full.ptr()};
  return call_slot(kGetItem, args, 2);
}

namespace {

// New reference, null on error. The graph may keep it.
PyObject *plain_value(PyObject *value) {
  if (is_tensor(value)) {
    return Py_NewRef(as_object(as_tensor(value)->array));
  }
  return PyArray_CheckExact(value) ? taken_view(as_array(value)) : Py_NewRef(value);
}

// The index with arrays in place of tensors. New reference, null on error.
py::object array_index(PyObject *full) {
  const Py_ssize_t n = PyTuple_GET_SIZE(full);
  auto plain = py::reinterpret_steal<py::object>(PyTuple_New(n));
  for (Py_ssize_t i = 0; plain && i < n; ++i) {
    PyObject *value = plain_value(PyTuple_GET_ITEM(full, i));
    if (value == nullptr) {
      return {};
    }
    PyTuple_SET_ITEM(plain.ptr(), i, value);
  }
  return plain;
}

// An error is set because this tensor must not be written. An index that it does not have is an
// error before that one.
void prefer_index_error(TensorObject *self, PyObject *index) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  const py::object full = full_index(self, index, false);
  const py::object plain = full ? array_index(full.ptr()) : py::object();
  const py::object array = py::reinterpret_borrow<py::object>(as_object(self->array));
  const auto part = py::reinterpret_steal<py::object>(
      plain ? PyObject_GetItem(array.ptr(), plain.ptr()) : nullptr);
  if (!part && PyErr_ExceptionMatches(PyExc_IndexError)) {
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return;
  }
  PyErr_Restore(type, error, traceback);
}

// Of an expanded tensor a basic index may choose a part in which each element is there once. Where
// an index array chooses, all that is written to one element is the same or the last of several.
int check_part_overlap(TensorObject *self, PyObject *plain) {
  if (self->is_meta || !is_expanded(self->array)) {
    return 0;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(plain); ++i) {
    if (is_advanced(PyTuple_GET_ITEM(plain, i))) {
      return 0;
    }
  }
  const auto array = py::reinterpret_borrow<py::object>(as_object(self->array));
  const auto part = py::reinterpret_steal<py::object>(PyObject_GetItem(array.ptr(), plain));
  if (!part) {
    return -1;
  }
  return PyArray_Check(part.ptr()) && is_expanded(as_array(part.ptr())) ? refuse_overlap() : 0;
}

}  // namespace

namespace {

// The index with copies of its arrays, where they are large: NumPy checks all indices, then lets
// other threads run, and then uses what is there. New reference, null on error.
PyObject *own_index(PyObject *index) {
  constexpr npy_intp kAtOnce = 500;  // up to so many, NumPy lets no other thread run
  if (is_ndarray(index)) {
    return PyArray_SIZE(as_array(index)) > kAtOnce ? PyArray_NewCopy(as_array(index), NPY_KEEPORDER)
                                                   : Py_NewRef(index);
  }
  if (!PyTuple_CheckExact(index)) {
    return Py_NewRef(index);
  }
  const Py_ssize_t n = PyTuple_GET_SIZE(index);
  bool is_own = true;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *item = PyTuple_GET_ITEM(index, i);
    is_own = is_own && !(is_ndarray(item) && PyArray_SIZE(as_array(item)) > kAtOnce);
  }
  if (is_own) {
    return Py_NewRef(index);
  }
  auto own = py::reinterpret_steal<py::object>(PyTuple_New(n));
  for (Py_ssize_t i = 0; own && i < n; ++i) {
    PyObject *item = PyTuple_GET_ITEM(index, i);
    item = is_ndarray(item) ? own_index(item) : Py_NewRef(item);
    if (item == nullptr) {
      return nullptr;
    }
    PyTuple_SET_ITEM(own.ptr(), i, item);
  }
  return own.release().ptr();
}

}  // namespace

namespace {

// The value as an array or a number. Where index arrays choose, a tensor must have the dtype, but
// for one value for all elements of one mask, which must fit. Null on error.
py::object converted_value(TensorObject *self, PyObject *index, PyObject *full, PyObject *value) {
  auto source = py::reinterpret_steal<py::object>(plain_value(value));
  if (!source || !is_tensor(value) ||
      PyArray_TYPE(as_array(source.ptr())) == PyArray_TYPE(self->array)) {
    return source;
  }
  int arrays = 0;
  bool one_mask = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(full); ++i) {
    PyObject *item = PyTuple_GET_ITEM(full, i);
    if (is_advanced(item) && !PyBool_Check(index)) {
      ++arrays;
      one_mask = is_mask(item) && !PyBool_Check(item) && PyArray_NDIM(array_of_item(item)) > 0;
    }
  }
  if (arrays == 0 || self->is_meta) {
    return source;
  }
  if (arrays > 1 || !one_mask || PyArray_SIZE(as_array(source.ptr())) != 1) {
    PyErr_Format(PyExc_RuntimeError,
                 "Index put requires the source and destination dtypes match, got %s for the "
                 "destination and %s for the source: convert the source with .to(dtype)",
                 scalar_type_name(PyArray_TYPE(self->array)),
                 scalar_type_name(PyArray_TYPE(as_array(source.ptr()))));
    return {};
  }
  DTypeObject *dtype = dtype_of(self->array);
  const auto number =
      py::reinterpret_steal<py::object>(PyObject_CallMethod(source.ptr(), "item", nullptr));
  const auto fitted = py::reinterpret_steal<py::object>(
      number && dtype != nullptr ? fitted_number(number.ptr(), dtype) : nullptr);
  return fitted ? source : py::object();
}

// A mask takes a vector in NumPy, and an array into one place: a TypeError is set. torch passes
// over leading dimensions of size 1. False with an error set.
bool set_without_leading_ones(PyObject *target, PyObject *index, PyObject *source) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError) || !PyArray_Check(source)) {
    return false;
  }
  PyArrayObject *array = as_array(source);
  int ones = 0;
  while (ones < PyArray_NDIM(array) && PyArray_DIM(array, ones) == 1) {
    ++ones;
  }
  if (ones == 0) {
    return false;
  }
  PyErr_Clear();
  PyArray_Dims rest{PyArray_DIMS(array) + ones, PyArray_NDIM(array) - ones};
  const auto shorter =
      py::reinterpret_steal<py::object>(PyArray_Newshape(array, &rest, NPY_CORDER));
  return shorter && PyObject_SetItem(target, index, shorter.ptr()) == 0;
}

// NumPy does not compare shapes where index arrays choose nothing. False with an error set.
bool fits_nothing(PyObject *target, PyObject *index, PyObject *source) {
  if (!is_ndarray(source) || PyArray_SIZE(as_array(source)) > 0) {
    return true;
  }
  const auto chosen = py::reinterpret_steal<py::object>(PyObject_GetItem(target, index));
  if (!chosen) {
    return false;
  }
  PyArrayObject *value = as_array(source);
  const int ndim = is_ndarray(chosen.ptr()) ? PyArray_NDIM(as_array(chosen.ptr())) : 0;
  const int extra = PyArray_NDIM(value) - ndim;
  bool fits = true;
  for (int d = 0; d < extra; ++d) {
    fits = fits && PyArray_DIM(value, d) == 1;
  }
  for (int d = std::max(extra, 0); fits && d < PyArray_NDIM(value); ++d) {
    const npy_intp size = PyArray_DIM(value, d);
    fits = size == 1 || size == PyArray_DIM(as_array(chosen.ptr()), d - extra);
  }
  if (!fits) {
    const auto a = py::reinterpret_steal<py::object>(shape_text(value));
    const auto b = py::reinterpret_steal<py::object>(ndim > 0 ? shape_text(as_array(chosen.ptr()))
                                                              : PyUnicode_FromString("[]"));
    if (a && b) {
      PyErr_Format(PyExc_RuntimeError,
                   "shape mismatch: value tensor of shape %S cannot be broadcast to indexing "
                   "result of shape %S",
                   a.ptr(), b.ptr());
    }
  }
  return fits;
}

}  // namespace

int mp_ass_subscript(PyObject *obj, PyObject *index, PyObject *value) {
  PyObject *given[3] = {obj, index, value};
  PyObject *answer;
  if (value != nullptr && is_overridden(given, 3) &&
      call_operator_override("__setitem__", given, 3, &answer)) {
    Py_XDECREF(answer);
    return answer == nullptr ? -1 : 0;
  }
  TensorObject *self = as_tensor(obj);
  if (value == nullptr) {
    PyErr_SetString(PyExc_TypeError, "elements of a Tensor cannot be deleted");
    return -1;
  }
  if (!is_operand(value)) {
    if (is_foreign_tensor(value)) {
      raise_not_tensor(PyExc_TypeError, "can't assign a %S to a part of a modtree.Tensor", value);
    } else {
      PyErr_Format(PyExc_TypeError, "can't assign a %s to a Tensor of %s", Py_TYPE(value)->tp_name,
                   scalar_type_name(PyArray_TYPE(self->array)));
    }
    return -1;
  }
  if (index == Py_False) {
    return 0;  // chooses nothing, so that the value is not a part of the graph either
  }
  if (check_inplace(self, grad_enabled() && any_needs_grad(&value, 1)) < 0) {
    prefer_index_error(self, index);
    return -1;
  }
  if (is_tensor(value) && as_tensor(value)->is_meta && !self->is_meta) {
    PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
    return -1;
  }
  py::object full = full_index(self, index, false);
  if (!full || !(self->is_meta || check_meta_index(self, full.ptr()))) {
    return -1;
  }
  py::object basic, rest;
  if (split_index(full.ptr(), basic, rest)) {
    PyObject *first[2] = {obj, basic.ptr()};
    py::object view = py::reinterpret_steal<py::object>(call_slot(kGetItem, first, 2));
    return view ? PyObject_SetItem(view.ptr(), rest.ptr(), value) : -1;
  }
  const py::object plain = array_index(full.ptr());
  if (!plain) {
    return -1;
  }
  py::object source = converted_value(self, index, full.ptr(), value);
  if (source && PyArray_Check(source.ptr()) && PyArray_NDIM(as_array(source.ptr())) > 0 &&
      PyArray_SIZE(as_array(source.ptr())) == 1) {
    // NumPy puts no array of one element into one place.
    PyArray_Dims none{nullptr, 0};
    source = py::reinterpret_steal<py::object>(
        PyArray_Newshape(as_array(source.ptr()), &none, NPY_CORDER));
  }
  if (source && !PyArray_Check(source.ptr())) {
    DTypeObject *dtype = dtype_of(self->array);
    source = py::reinterpret_steal<py::object>(
        dtype == nullptr ? nullptr : fitted_number(source.ptr(), dtype));
  }
  if (!source) {
    return -1;
  }
  py::object target = py::reinterpret_borrow<py::object>(as_object(self->array));
  if (check_part_overlap(self, plain.ptr()) < 0) {
    return -1;
  }
  PyObject *originals[3] = {obj, plain.ptr(), value};
  PyObject *values[3] = {target.ptr(), plain.ptr(), source.ptr()};
  OpObject *op = slot_op(kSetItem);
  InplaceRecord recorded;
  if (op == nullptr || recorded.begin(op, self, originals, values, 3, 3) < 0) {
    return -1;
  }
  if (self->is_meta) {
    return recorded.finish(self);
  }
  const auto own = py::reinterpret_steal<py::object>(own_index(plain.ptr()));
  if (!own) {
    return -1;
  }
  if (!fits_nothing(target.ptr(), own.ptr(), source.ptr())) {
    return -1;
  }
  if (PyObject_SetItem(target.ptr(), own.ptr(), source.ptr()) < 0 &&
      !set_without_leading_ones(target.ptr(), own.ptr(), source.ptr())) {
    if (PyArray_SIZE(as_array(target.ptr())) == 0) {
      prefer_index_error(self, index);
    }
    if (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_TypeError)) {
      py::error_already_set error;
      PyErr_Format(PyExc_RuntimeError, "assignment to a Tensor: %S", error.value().ptr());
    }
    return -1;
  }
  return recorded.finish(self);
}

namespace {

PyObject *own_index_function(PyObject *, PyObject *index) { return own_index(index); }

// array[own_index(index)]
PyObject *get_items(PyObject *, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs != 2) {
    PyErr_Format(PyExc_TypeError, "get_items() takes 2 arguments, got %zd", nargs);
    return nullptr;
  }
  const auto own = py::reinterpret_steal<py::object>(own_index(args[1]));
  return own ? PyObject_GetItem(args[0], own.ptr()) : nullptr;
}

PyMethodDef kSubscriptFunctions[] = {
    {"own_index", entry<own_index_function>, METH_O,
     "own_index(index, /)\n--\n\nAn index of arrays that no other thread changes while NumPy uses "
     "it."},
    {"get_items", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<get_items>)),
     METH_FASTCALL, "get_items(array, index, /)\n--\n\narray[own_index(index)]"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_index_functions(py::handle m) {
  if (PyModule_AddFunctions(m.ptr(), kSubscriptFunctions) < 0) {
    throw py::error_already_set();
  }
}

}  // namespace modtree
