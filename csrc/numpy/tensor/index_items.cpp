// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/index_items.h"

#include "tensor/array_view.h"
#include "tensor/op_errors.h"

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
// Anything but an index comes back as it is, for NumPy to refuse. Null on error.
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
    array = as_tensor(item)->is_meta ? nullptr : as_tensor(item)->array;
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

// What takes the place of an item of an index: an array for a list, an int for an integer
// scalar, array or tensor. New reference; null on error.
PyObject *plain_item(PyObject *item) {
  if (PyList_Check(item)) {
    return array_of_list(item).release().ptr();
  }
  if (PyArray_IsScalar(item, Integer)) {
    return PyNumber_Index(item);
  }
  if (is_tensor(item) && !as_tensor(item)->is_meta &&
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

}  // namespace

PyArrayObject *array_of_item(PyObject *item) {
  return is_tensor(item) ? as_tensor(item)->array : PyArray_Check(item) ? as_array(item) : nullptr;
}

bool is_mask(PyObject *item) {
  PyArrayObject *array = array_of_item(item);
  return array != nullptr ? PyArray_TYPE(array) == NPY_BOOL : PyBool_Check(item) != 0;
}

bool is_advanced(PyObject *item) {
  PyArrayObject *array = array_of_item(item);
  return array != nullptr ? PyArray_NDIM(array) > 0 || PyArray_TYPE(array) == NPY_BOOL
                          : PyList_Check(item) != 0 || PyBool_Check(item) != 0;
}

namespace {

// How many dimensions of the indexed array an item takes.
int dimensions_taken(PyObject *item) {
  if (item == Py_None || item == Py_Ellipsis) {
    return 0;
  }
  PyArrayObject *array = array_of_item(item);
  return !is_mask(item) ? 1 : array == nullptr ? 0 : PyArray_NDIM(array);
}

bool is_mask_of_nothing(PyObject *item) {
  PyArrayObject *array = is_mask(item) ? array_of_item(item) : nullptr;
  return array != nullptr && PyArray_SIZE(array) == 0;
}

// NumPy takes a mask without elements whatever the shape. False with an error set.
bool check_masks_of_nothing(PyArrayObject *indexed, PyObject *full) {
  const Py_ssize_t n = PyTuple_GET_SIZE(full);
  int taken = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    taken += dimensions_taken(PyTuple_GET_ITEM(full, i));
  }
  const int left_over = PyArray_NDIM(indexed) - taken;
  if (left_over < 0) {
    return true;  // too many indices, which NumPy refuses
  }
  int first = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *item = PyTuple_GET_ITEM(full, i);
    if (is_mask_of_nothing(item)) {
      PyArrayObject *mask = array_of_item(item);
      for (int d = 0; d < PyArray_NDIM(mask); ++d) {
        if (PyArray_DIM(mask, d) != PyArray_DIM(indexed, first + d)) {
          const auto a = py::reinterpret_steal<py::object>(shape_text(mask));
          const auto b = py::reinterpret_steal<py::object>(shape_text(indexed));
          if (a && b) {
            PyErr_Format(PyExc_IndexError,
                         "The shape of the mask %S at index %d does not match the shape of the "
                         "indexed tensor %S at index %d",
                         a.ptr(), d, b.ptr(), first + d);
          }
          return false;
        }
      }
    }
    first += item == Py_Ellipsis ? left_over : dimensions_taken(item);
  }
  return true;
}

}  // namespace

py::object full_index(TensorObject *self, PyObject *index, bool add_ellipsis) {
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
  bool has_mask_of_nothing = false;
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
    has_mask_of_nothing |= is_mask_of_nothing(plain);
    Py_DECREF(item);
  }
  if (has_mask_of_nothing && !check_masks_of_nothing(self->array, full.ptr())) {
    return py::object();
  }
  return full;
}

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
      for (int d = 0; d < dimensions_taken(item.ptr()); ++d) {
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

}  // namespace modtree
