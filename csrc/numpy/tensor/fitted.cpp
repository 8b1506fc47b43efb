// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/fitted.h"

#include <cfloat>
#include <climits>
#include <cmath>

#include "tensor/promote.h"

namespace modtree {

namespace {

using C = DTypeCategory;

PyObject *refuse(PyObject *number, DTypeObject *dtype) {
  PyErr_Format(PyExc_RuntimeError,
               "value cannot be converted to type %U without overflow: %R does not fit",
               dtype->name, number);
  return nullptr;
}

double largest_of(int num) {
  return num == NPY_FLOAT16                           ? 65504.0
         : num == NPY_FLOAT32 || num == NPY_COMPLEX64 ? static_cast<double>(FLT_MAX)
                                                      : DBL_MAX;
}

// An int in a dtype of integers. Negative ones wrap around in unsigned dtypes.
PyObject *fitted_int(PyObject *number, PyObject *whole, DTypeObject *dtype, bool may_wrap) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(whole, &overflow);
  if (value == -1 && PyErr_Occurred()) {
    return nullptr;
  }
  const int bits = 8 * static_cast<int>(PyDataType_ELSIZE(dtype->descr));
  const bool is_wide = bits >= 64;
  const long long most = is_wide ? LLONG_MAX : (1LL << (bits - (dtype->is_signed ? 1 : 0))) - 1;
  const bool wraps = !dtype->is_signed && value < 0;
  const long long least = dtype->is_signed ? -most - 1 : (may_wrap ? -most : 0);
  if (overflow != 0 || value > most || value < least) {
    return refuse(number, dtype);
  }
  return PyLong_FromLongLong(wraps && !is_wide ? value + most + 1 : value);
}

PyObject *fitted_float(PyObject *number, double value, DTypeObject *dtype) {
  if (!is_float_category(dtype->category)) {
    if (!std::isfinite(value) || (value < 0 && !dtype->is_signed)) {
      return refuse(number, dtype);
    }
    py::object whole = py::reinterpret_steal<py::object>(PyLong_FromDouble(value));
    return whole ? fitted_int(number, whole.ptr(), dtype, false) : nullptr;
  }
  return std::isfinite(value) && std::fabs(value) > largest_of(dtype->num)
             ? refuse(number, dtype)
             : PyFloat_FromDouble(value);
}

}  // namespace

PyObject *fitted_number(PyObject *number, DTypeObject *dtype) {
  C category;
  if (!number_category(number, &category) || PyTypeNum_ISUSERDEF(dtype->num)) {
    return Py_NewRef(number);
  }
  py::object plain = py::reinterpret_steal<py::object>(
      PyArray_CheckScalar(number) ? PyObject_CallMethod(number, "item", nullptr)
                                  : Py_NewRef(number));
  if (!plain) {
    return nullptr;
  }
  if (category == C::boolean || dtype->category == C::boolean) {
    const int truth = PyObject_IsTrue(plain.ptr());
    return truth < 0 ? nullptr : PyBool_FromLong(truth);
  }
  if (category == C::complex) {
    const Py_complex value = PyComplex_AsCComplex(plain.ptr());
    if (dtype->category == C::complex) {
      const bool fits =
          (!std::isfinite(value.real) || std::fabs(value.real) <= largest_of(dtype->num)) &&
          (!std::isfinite(value.imag) || std::fabs(value.imag) <= largest_of(dtype->num));
      return fits ? plain.release().ptr() : refuse(number, dtype);
    }
    return value.imag != 0 ? refuse(number, dtype) : fitted_float(number, value.real, dtype);
  }
  if (category == C::floating) {
    const double value = PyFloat_AsDouble(plain.ptr());
    return value == -1.0 && PyErr_Occurred() ? nullptr : fitted_float(number, value, dtype);
  }
  if (dtype->category == C::integral) {
    return fitted_int(number, plain.ptr(), dtype, true);
  }
  const double value = PyLong_AsDouble(plain.ptr());
  if (value == -1.0 && PyErr_Occurred()) {
    return nullptr;
  }
  py::object kept = py::reinterpret_steal<py::object>(fitted_float(number, value, dtype));
  return kept ? plain.release().ptr() : nullptr;
}

}  // namespace modtree
