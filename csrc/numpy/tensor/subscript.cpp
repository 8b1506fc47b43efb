// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/subscript.h"

#include "tensor/array_view.h"
#include "tensor/autograd/record.h"
#include "tensor/batched.h"
#include "tensor/fitted.h"
#include "tensor/number.h"
#include "tensor/op_errors.h"
#include "tensor/override.h"
#include "tensor/slot_ops.h"

namespace modtree {

namespace {

bool check_slice(PyObject *item) {
  if (PySlice_Check(item)) {
    PyObject *step = reinterpret_cast<PySliceObject *>(item)->step;
    int overflow;
    if (PyLong_Check(step) && PyLong_AsLongLongAndOverflow(step, &overflow) <= 0 && overflow <= 0) {
      PyErr_SetString(PyExc_ValueError,
                      "step must be greater than zero; use flip() to reverse a dimension");
      return false;
    }
  }
  return true;
}

// A list as the array that NumPy would make of it: the graph may keep it, and the list may change.
// What is no index comes back as it is, for NumPy to refuse. Null on error.
py::object array_of_list(PyObject *item) {
  auto made = py::reinterpret_steal<py::object>(PyArray_FromAny(item, nullptr, 0, 0, 0, nullptr));
  if (!made) {
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_TypeError)) {
      return made;
    }
    PyErr_Clear();
    return py::reinterpret_borrow<py::object>(item);
  }
  PyArrayObject *array = as_array(made.ptr());
  if (PyArray_SIZE(array) == 0 && !PyArray_ISBOOL(array)) {
    return py::reinterpret_steal<py::object>(
        PyArray_CastToType(array, PyArray_DescrFromType(NPY_INTP), 0));
  }
  return PyArray_ISINTEGER(array) || PyArray_ISBOOL(array)
             ? made
             : py::reinterpret_borrow<py::object>(item);
}

// The integer array behind an index without dimensions, which counts as a Python integer: it
// chooses a view, and is applied before index arrays. Null: it is none. A uint8 is a mask.
PyArrayObject *whole_number(PyObject *item) {
  PyArrayObject *array = nullptr;
  if (is_tensor(item)) {
    array = as_tensor(item)->is_meta || is_batched(item) ? nullptr : as_tensor(item)->array;
  } else if (is_ndarray(item)) {
    array = as_array(item);
  }
  const bool is_whole = array != nullptr && PyArray_NDIM(array) == 0 && PyArray_ISINTEGER(array) &&
                        PyArray_TYPE(array) != NPY_UINT8;
  return is_whole ? array : nullptr;
}

// A tensor of uint8 is a mask, as it was before there were bools. New reference; null on error.
PyObject *mask_of_bytes(PyArrayObject *bytes) {
  if (PyErr_WarnEx(PyExc_UserWarning,
                   "indexing with dtype modtree.uint8 is now deprecated, please use a dtype "
                   "modtree.bool instead: mask.bool()",
                   1) < 0) {
    return nullptr;
  }
  return PyArray_CastToType(bytes, PyArray_DescrFromType(NPY_BOOL), 0);
}

// What takes the place of an item of an index: an array for a list, an int for what stands for one.
// New reference; null on error.
PyObject *plain_item(PyObject *item) {
  if (PyList_Check(item)) {
    return array_of_list(item).release().ptr();
  }
  if (PyArray_IsScalar(item, Integer)) {
    return PyNumber_Index(item);
  }
  if (is_tensor(item) && !as_tensor(item)->is_meta && !is_batched(item) &&
      PyArray_TYPE(as_tensor(item)->array) == NPY_UINT8) {
    return mask_of_bytes(as_tensor(item)->array);
  }
  if (PyArrayObject *number = whole_number(item)) {
    return PyNumber_Index(as_object(number));
  }
  if (is_tensor(item)) {
    const int num = PyArray_TYPE(as_tensor(item)->array);
    if (PyTypeNum_ISINTEGER(num) && num != NPY_INT64 && num != NPY_INT32) {
      PyErr_SetString(PyExc_IndexError,
                      "tensors used as indices must be long, int, byte or bool tensors");
      return nullptr;
    }
  }
  return Py_NewRef(item);
}

// The index with a final Ellipsis, so that NumPy answers with a view (never a scalar) whatever is
// selected.
py::object full_index(PyObject *index, bool add_ellipsis) {
  bool is_tuple = PyTuple_Check(index);
  Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(index) : 1;
  bool has_ellipsis = false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *item = is_tuple ? PyTuple_GET_ITEM(index, i) : index;
    has_ellipsis |= item == Py_Ellipsis;
    if (!check_slice(item)) {
      return py::object();
    }
  }
  bool extend = add_ellipsis && !has_ellipsis;
  py::object full = py::reinterpret_steal<py::object>(PyTuple_New(n + (extend ? 1 : 0)));
  if (!full) {
    return full;
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *item = is_tuple ? PyTuple_GET_ITEM(index, i) : index;
    PyTuple_SET_ITEM(full.ptr(), i, Py_NewRef(item));
  }
  if (extend) {
    Py_INCREF(Py_Ellipsis);
    PyTuple_SET_ITEM(full.ptr(), n, Py_Ellipsis);
  }
  // The tuple is whole before elements of a list may run code.
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *item = PyTuple_GET_ITEM(full.ptr(), i);
    if (PyLong_CheckExact(item) || PySlice_Check(item) || item == Py_Ellipsis) {
      continue;
    }
    PyObject *plain = plain_item(item);
    if (plain == nullptr) {
      return py::object();
    }
    PyTuple_SET_ITEM(full.ptr(), i, plain);
    Py_DECREF(item);
  }
  return full;
}

PyArrayObject *array_of_item(PyObject *item) {
  return is_tensor(item) ? as_tensor(item)->array : PyArray_Check(item) ? as_array(item) : nullptr;
}

// A mask, or a bool, which takes no dimension.
bool is_mask(PyObject *item) {
  PyArrayObject *array = array_of_item(item);
  return array != nullptr ? PyArray_TYPE(array) == NPY_BOOL : PyBool_Check(item) != 0;
}

bool is_advanced(PyObject *item) {
  PyArrayObject *array = array_of_item(item);
  return array != nullptr ? PyArray_NDIM(array) > 0 || PyArray_TYPE(array) == NPY_BOOL
                          : PyList_Check(item) != 0 || PyBool_Check(item) != 0;
}

// torch applies integers before index arrays, so that they do not count as index arrays themselves,
// which would move the result's dimensions. Splits such a mixed index into a basic one and one for
// what that leaves. False: not mixed, or an error is set.
bool split_index(PyObject *full, py::object &basic, py::object &rest) {
  Py_ssize_t n = PyTuple_GET_SIZE(full);
  bool has_int = false;
  bool has_advanced = false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *item = PyTuple_GET_ITEM(full, i);
    if (PyLong_CheckExact(item)) {
      has_int = true;
    } else if (!PySlice_Check(item) && item != Py_Ellipsis) {
      has_advanced |= is_advanced(item);
    }
  }
  if (!has_int || !has_advanced) {
    return false;
  }
  py::list first, second;
  const py::object all = py::slice(py::none{}, py::none{}, py::none{});
  for (Py_ssize_t i = 0; i < n; ++i) {
    py::handle item(PyTuple_GET_ITEM(full, i));
    if (is_advanced(item.ptr())) {
      // A mask takes as many dimensions as it has.
      PyArrayObject *array = array_of_item(item.ptr());
      const int taken = !is_mask(item.ptr()) ? 1 : array == nullptr ? 0 : PyArray_NDIM(array);
      for (int d = 0; d < taken; ++d) {
        first.append(all);
      }
      second.append(item);
    } else {
      first.append(item);
      if (!PyLong_CheckExact(item.ptr())) {
        second.append(item.is(py::ellipsis()) ? item : py::handle(all));
      }
    }
  }
  basic = py::tuple(first);
  rest = py::tuple(second);
  return true;
}

// Which elements a meta tensor chooses is not known; how many a meta tensor of integers chooses is.
bool check_meta_index(TensorObject *self, PyObject *full) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(full); ++i) {
    PyObject *item = PyTuple_GET_ITEM(full, i);
    if (is_tensor(item) && as_tensor(item)->is_meta && !is_batched(item) &&
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
  py::object full = full_index(index, true);
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
py::object plain_index(PyObject *full) {
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
  const py::object full = full_index(index, false);
  const py::object plain = full ? plain_index(full.ptr()) : py::object();
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
  PyObject *written[2] = {index, value};
  if (any_batched(written, 2)) {
    return refuse_batched_write("setitem");
  }
  if (check_inplace(self, grad_enabled() && any_needs_grad(&value, 1)) < 0) {
    prefer_index_error(self, index);
    return -1;
  }
  if (is_tensor(value) && as_tensor(value)->is_meta && !self->is_meta) {
    PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
    return -1;
  }
  py::object full = full_index(index, false);
  if (!full || !(self->is_meta || check_meta_index(self, full.ptr()))) {
    return -1;
  }
  py::object basic, rest;
  if (split_index(full.ptr(), basic, rest)) {
    PyObject *first[2] = {obj, basic.ptr()};
    py::object view = py::reinterpret_steal<py::object>(call_slot(kGetItem, first, 2));
    return view ? PyObject_SetItem(view.ptr(), rest.ptr(), value) : -1;
  }
  const py::object plain = plain_index(full.ptr());
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
  if (PyObject_SetItem(target.ptr(), own.ptr(), source.ptr()) < 0 &&
      !set_without_leading_ones(target.ptr(), own.ptr(), source.ptr())) {
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

PyMethodDef kFunctions[] = {
    {"own_index", own_index_function, METH_O,
     "own_index(index, /)\n--\n\nAn index of arrays that no other thread changes while NumPy uses "
     "it."},
    {"get_items", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(get_items)),
     METH_FASTCALL, "get_items(array, index, /)\n--\n\narray[own_index(index)]"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_index_functions(py::handle m) {
  if (PyModule_AddFunctions(m.ptr(), kFunctions) < 0) {
    throw py::error_already_set();
  }
}

}  // namespace modtree
