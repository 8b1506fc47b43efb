// SPDX-License-Identifier: BSD-3-Clause
#include "bind/array.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace modtree {

namespace {

Array checked_array(PyObject *array) {
  if (!array) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<Array>(array);
}

std::string text_of(py::handle object) {
  const auto text =
      py::reinterpret_steal<py::object>(object ? PyObject_Str(object.ptr()) : nullptr);
  const char *utf8 = text ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (!utf8) {
    throw py::error_already_set();
  }
  return utf8;
}

Array new_array_of(PyArray_Descr *descr, const Shape &shape, const Shape &strides) {
  if (!descr) {
    throw py::error_already_set();
  }
  // Takes the reference to the dtype, also where it fails.
  return checked_array(
      PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(shape.size()), shape.data(),
                           strides.empty() ? nullptr : strides.data(), nullptr, 0, nullptr));
}

}  // namespace

bool is_array(PyObject *object) { return PyArray_Check(object) != 0; }

bool is_array_of(PyObject *object, int type_number) {
  if (!is_array(object)) {
    return false;
  }
  const auto wanted = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject *>(PyArray_DescrFromType(type_number)));
  return PyArray_EquivTypes(PyArray_DESCR(reinterpret_cast<PyArrayObject *>(object)),
                            reinterpret_cast<PyArray_Descr *>(wanted.ptr())) != 0;
}

std::string dtype_name(int type_number) {
  const auto descr = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject *>(PyArray_DescrFromType(type_number)));
  return text_of(descr);
}

std::string Array::dtype_name() const {
  return text_of(reinterpret_cast<PyObject *>(PyArray_DESCR(raw())));
}

Array new_array(int type_number, const Shape &shape, const Shape &strides) {
  return new_array_of(PyArray_DescrFromType(type_number), shape, strides);
}

Array new_array_like(const Array &dtype_of, const Shape &shape) {
  auto *descr = PyArray_DESCR(reinterpret_cast<PyArrayObject *>(dtype_of.ptr()));
  Py_INCREF(descr);
  return new_array_of(descr, shape, {});
}

Array contiguous(py::handle object, int type_number) {
  PyArray_Descr *descr = PyArray_DescrFromType(type_number);
  if (!descr) {
    throw py::error_already_set();
  }
  constexpr int kFlags =
      NPY_ARRAY_ENSUREARRAY | NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_FORCECAST;
  return checked_array(PyArray_FromAny(object.ptr(), descr, 0, 0, kFlags, nullptr));
}

bool is_dense(const Array &x) {
  if (x.is_c_contiguous()) {
    return true;
  }
  std::vector<std::pair<py::ssize_t, py::ssize_t>> axes;  // stride, size
  for (py::ssize_t i = 0; i < x.ndim(); ++i) {
    if (x.shape(i) == 0) {
      return true;
    }
    if (x.shape(i) > 1) {
      axes.emplace_back(x.strides(i), x.shape(i));
    }
  }
  std::sort(axes.begin(), axes.end());
  py::ssize_t expected = x.itemsize();
  for (const auto &[stride, size] : axes) {
    if (stride != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

bool same_layout(const Array &a, const Array &b) {
  if (a.is_c_contiguous() && b.is_c_contiguous()) {
    return true;
  }
  for (py::ssize_t i = 0; i < a.ndim(); ++i) {
    if (a.shape(i) > 1 && a.strides(i) != b.strides(i)) {
      return false;
    }
  }
  return true;
}

Array dense_copy(const Array &x) {
  constexpr int kFlags = NPY_ARRAY_ENSURECOPY | NPY_ARRAY_ENSUREARRAY | NPY_ARRAY_ALIGNED;
  return checked_array(PyArray_FromAny(x.ptr(), nullptr, 0, 0, kFlags, nullptr));
}

void copy_into(const Array &to, const Array &from) {
  if (PyArray_CopyInto(reinterpret_cast<PyArrayObject *>(to.ptr()),
                       reinterpret_cast<PyArrayObject *>(from.ptr())) < 0) {
    throw py::error_already_set();
  }
}

}  // namespace modtree
