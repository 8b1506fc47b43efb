// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/special.h"

#include <cmath>

#include "python/native_section.h"
#include "tensor/object.h"

namespace modtree {

namespace {

double lgamma_of(double x) { return std::lgamma(x); }

// Applies a function of one double to a real floating array; the result has the dtype of the input.
template <double (*kFunction)(double)>
PyObject *apply(PyObject *, PyObject *arg) {
  if (!PyArray_Check(arg) || !PyTypeNum_ISFLOAT(PyArray_TYPE(as_array(arg)))) {
    PyErr_SetString(PyExc_TypeError, "expected an array of a real floating dtype");
    return nullptr;
  }
  PyArrayObject *array = as_array(arg);
  py::object input = py::reinterpret_steal<py::object>(PyArray_FromArray(
      array, PyArray_DescrFromType(NPY_DOUBLE), NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  if (!input) {
    return nullptr;
  }
  PyArrayObject *values = as_array(input.ptr());
  py::object output = py::reinterpret_steal<py::object>(
      PyArray_SimpleNew(PyArray_NDIM(values), PyArray_DIMS(values), NPY_DOUBLE));
  if (!output) {
    return nullptr;
  }
  const auto *from = static_cast<const double *>(PyArray_DATA(values));
  auto *to = static_cast<double *>(PyArray_DATA(as_array(output.ptr())));
  npy_intp n = PyArray_SIZE(values);
  Py_BEGIN_ALLOW_THREADS for (npy_intp i = 0; i < n; ++i) { to[i] = kFunction(from[i]); }
  Py_END_ALLOW_THREADS PyArray_Descr *descr = PyArray_DESCR(array);
  Py_INCREF(descr);
  return PyArray_CastToType(as_array(output.ptr()), descr, 0);
}

PyMethodDef kSpecialFunctions[] = {
    {"_lgamma", entry<apply<lgamma_of>>, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_special_functions(py::handle m) {
  if (PyModule_AddFunctions(m.ptr(), kSpecialFunctions) < 0) {
    throw py::error_already_set();
  }
}

}  // namespace modtree
