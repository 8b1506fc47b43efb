// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/float_errors.h"

#include <vector>

#include "python/call.h"
#include "python/once.h"

namespace modtree {

namespace {

PyObject *g_variable = nullptr;  // NumPy's context variable; null when this NumPy has none
PyObject *g_ignore = nullptr;    // its value that ignores every error

// Contexts that hold g_ignore and are entered by nobody. One per thread that was ever inside an
// operation at the same time.
std::vector<PyObject *> *g_pool = nullptr;

PyObject *take_context() {
  if (!g_pool->empty()) {
    PyObject *context = g_pool->back();
    g_pool->pop_back();
    return context;
  }
  // User code run by the collector would see this context as its own.
  const CollectorPause pause;
  PyObject *context = PyContext_New();
  if (context == nullptr || PyContext_Enter(context) < 0) {
    Py_XDECREF(context);
    return nullptr;
  }
  PyObject *token = PyContextVar_Set(g_variable, g_ignore);
  PyContext_Exit(context);
  if (token == nullptr) {
    Py_DECREF(context);
    return nullptr;
  }
  Py_DECREF(token);
  return context;
}

}  // namespace

// A failure to silence is not a failure of the operation: it runs with the user's own error state.
SilenceFloatErrors::SilenceFloatErrors(Work work) {
  if (g_variable == nullptr) {
    return;
  }
  PyObject *current = nullptr;
  if (PyContextVar_Get(g_variable, nullptr, &current) < 0) {
    PyErr_Clear();
    return;
  }
  Py_XDECREF(current);  // only compared
  if (current == g_ignore) {
    return;
  }
  if (work == Work::native) {
    context_ = take_context();
    if (context_ != nullptr && PyContext_Enter(context_) < 0) {
      Py_CLEAR(context_);
    }
  } else {
    scope_.emplace(g_variable, g_ignore);
  }
  if (context_ == nullptr && !(scope_ && scope_->entered())) {
    PyErr_Clear();
  }
}

SilenceFloatErrors::~SilenceFloatErrors() {
  if (context_ != nullptr) {
    PyContext_Exit(context_);
    g_pool->push_back(context_);
  }
}

void init_float_errors() {
  g_pool = new std::vector<PyObject *>();
  const py::object make = import_attribute("numpy._core.umath", "_make_extobj");
  const auto no_arguments = py::reinterpret_steal<py::object>(PyTuple_New(0));
  const auto keywords = py::reinterpret_steal<py::object>(Py_BuildValue("{s:s}", "all", "ignore"));
  if (make && no_arguments && keywords) {
    g_ignore = PyObject_Call(make.ptr(), no_arguments.ptr(), keywords.ptr());
  }
  if (g_ignore) {
    g_variable = import_attribute("numpy._core.umath", "_extobj_contextvar").release().ptr();
  }
  if (!g_variable) {
    PyErr_Clear();  // a NumPy without these private names: its warnings are shown
  }
}

}  // namespace modtree
