// SPDX-License-Identifier: BSD-3-Clause
#include "module/convert/torch_to.h"

#include "python/compat.h"
#include "python/interned.h"

namespace modtree {

namespace {

PyObject *torch_to_code = nullptr;  // strong

// What a closure variable of the function holds; null when it has none of that name.
py::object closure_value(PyObject *function, const char *name) {
  PyObject *cells = PyFunction_GET_CLOSURE(function);
  const auto variables =
      py::reinterpret_steal<py::object>(PyObject_GetAttrString(torch_to_code, "co_freevars"));
  if (!cells || !variables || PyTuple_GET_SIZE(cells) != PyTuple_GET_SIZE(variables.ptr())) {
    return py::object();
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cells); ++i) {
    PyObject *variable = PyTuple_GET_ITEM(variables.ptr(), i);
    if (PyUnicode_CompareWithASCIIString(variable, name) == 0) {
      return py::reinterpret_borrow<py::object>(PyCell_GET(PyTuple_GET_ITEM(cells, i)));
    }
  }
  return py::object();
}

// tensor.name() of a question; -1 on error.
int ask(PyObject *tensor, PyObject *name) {
  const auto answer = py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(tensor, name));
  return answer ? PyObject_IsTrue(answer.ptr()) : -1;
}

}  // namespace

void set_torch_to(py::handle code) {
  if (!PyCode_Check(code.ptr())) {
    throw py::type_error("expected a code object");
  }
  torch_to_code = code.inc_ref().ptr();
}

TorchTo::TorchTo(PyObject *fn) {
  if (!torch_to_code || !PyFunction_Check(fn) || PyFunction_GET_CODE(fn) != torch_to_code) {
    return;
  }
  const py::object format = closure_value(fn, "convert_to_format");
  dtype_ = closure_value(fn, "dtype");
  non_blocking_ = closure_value(fn, "non_blocking");
  if (format && format.is_none() && dtype_ && non_blocking_) {
    device_ = closure_value(fn, "device");
  }
}

PyObject *TorchTo::convert(PyObject *tensor) const {
  int takes_dtype = dtype_.is_none() ? 0 : ask(tensor, names.is_floating_point);
  if (takes_dtype == 0 && !dtype_.is_none()) {
    takes_dtype = ask(tensor, names.is_complex);
  }
  if (takes_dtype < 0) {
    return nullptr;
  }
  PyObject *arguments[] = {nullptr, tensor, device_.ptr(), takes_dtype ? dtype_.ptr() : Py_None,
                           non_blocking_.ptr()};
  return PyObject_VectorcallMethod(names.to, arguments + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   nullptr);
}

}  // namespace modtree
