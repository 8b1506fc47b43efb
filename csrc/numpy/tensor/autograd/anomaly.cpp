// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/autograd/anomaly.h"

#include "python/context_variable.h"
#include "python/installed.h"
#include "python/once.h"

namespace modtree {

AnomalyMode anomaly_mode;

namespace {

PyObject *g_evaluated = nullptr;  // context variable: the node whose backward runs

int refuse_nan(NodeObject *node, Gradients &results) {
  const auto gradients =
      py::reinterpret_steal<py::object>(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (std::size_t i = 0; gradients && i < results.size(); ++i) {
    PyTuple_SET_ITEM(gradients.ptr(), static_cast<Py_ssize_t>(i),
                     Py_NewRef(results[i] == nullptr ? Py_None : results[i]));
  }
  const auto name = py::reinterpret_steal<py::object>(gradients ? node_name(node) : nullptr);
  return name && call_installed(installed.refuse_nan, name, gradients) ? 0 : -1;
}

// An error is set: it stays, unless the warning is one itself.
void explain(NodeObject *node) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  if (call_installed(installed.explain_anomaly, as_object(node))) {
    PyErr_Restore(type, error, traceback);
    return;
  }
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
}

}  // namespace

int note_forward(NodeObject *node) {
  const py::object stack = call_installed(installed.forward_traceback);
  if (!stack || fill_once(&node->dict, PyDict_New) == nullptr) {
    return -1;
  }
  const auto metadata = py::reinterpret_borrow<py::object>(node->dict);
  if (PyDict_SetItemString(metadata.ptr(), "traceback_", stack.ptr()) < 0) {
    return -1;
  }
  const py::object parent = context_value(g_evaluated);
  return parent ? PyDict_SetItemString(metadata.ptr(), "parent_", parent.ptr()) : 0;
}

int apply_inspected(NodeObject *node, Gradients &outputs, const std::vector<bool> &wanted,
                    Gradients &results, bool on_tensors) {
  const auto held = py::reinterpret_borrow<py::object>(as_object(node));
  int status;
  {
    PyObject *variable =
        fill_once(&g_evaluated, [] { return PyContextVar_New("modtree.evaluated", nullptr); });
    const ContextScope evaluated(variable, as_object(node));
    status = evaluated.entered() ? apply_node(node, outputs, wanted, results, on_tensors) : -1;
  }
  if (status == 0 && anomaly_mode.check_nan) {
    status = refuse_nan(node, results);
  }
  if (status < 0) {
    explain(node);
  }
  return status;
}

}  // namespace modtree
