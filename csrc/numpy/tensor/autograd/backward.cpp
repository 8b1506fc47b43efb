// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/backward.h"

#include "python/once.h"
#include "python/slot_guard.h"
#include "tensor/autograd/engine.h"

namespace modtree {

py::object inputs_tuple(PyObject *inputs) {
  return py::reinterpret_steal<py::object>(is_tensor(inputs) ? PyTuple_Pack(1, inputs)
                                                             : tuple_of_items(inputs));
}

PyObject *tensor_backward(PyObject *self, PyObject *args, PyObject *kwargs) {
  static const char *kKeywords[] = {"gradient", "retain_graph", "create_graph", "inputs", nullptr};
  PyObject *gradient = Py_None, *retain_graph = Py_None, *inputs = Py_None;
  int create_graph = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOpO:backward", const_cast<char **>(kKeywords),
                                   &gradient, &retain_graph, &create_graph, &inputs)) {
    return nullptr;
  }
  const int keep = retain_graph == Py_None ? create_graph : PyObject_IsTrue(retain_graph);
  if (keep < 0) {
    return nullptr;
  }
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    auto roots = py::reinterpret_steal<py::object>(PyTuple_Pack(1, self));
    auto gradients = py::reinterpret_steal<py::object>(PyTuple_Pack(1, gradient));
    py::object chosen;
    if (inputs != Py_None) {
      chosen = inputs_tuple(inputs);
      if (!chosen) {
        return nullptr;
      }
      if (PyTuple_GET_SIZE(chosen.ptr()) == 0) {
        PyErr_SetString(PyExc_RuntimeError, "'inputs' argument to backward cannot be empty.");
        return nullptr;
      }
    }
    if (!roots || !gradients) {
      return nullptr;
    }
    return run_backward(roots.ptr(), gradients.ptr(), chosen.ptr(),
                        {keep != 0, create_graph != 0, true, true});
  });
}

}  // namespace modtree
