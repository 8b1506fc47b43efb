// SPDX-License-Identifier: BSD-3-Clause
#include "bind/guarded_functions.h"

#include "python/slot_guard.h"

namespace modtree {

namespace py = pybind11;

namespace {

using FastCall = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
using DictCall = PyObject *(*)(PyObject *, PyObject *, PyObject *);

// The one function of pybind11's that stands behind all that it makes; which of the two it is
// depends on its version.
PyCFunction dispatcher = nullptr;

template <class Call>
Call as_call(PyCFunction function) {
  return reinterpret_cast<Call>(reinterpret_cast<void (*)()>(function));
}

PyObject *guarded_fast(PyObject *self, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords) {
  return slot_guard<PyObject *>(
      nullptr, [&] { return as_call<FastCall>(dispatcher)(self, args, count, keywords); });
}

PyObject *guarded_dict(PyObject *self, PyObject *args, PyObject *keywords) {
  return slot_guard<PyObject *>(
      nullptr, [&] { return as_call<DictCall>(dispatcher)(self, args, keywords); });
}

PyMethodDef *definition(py::handle function) {
  return reinterpret_cast<PyCFunctionObject *>(function.ptr())->m_ml;
}

void guard_function(py::handle function) {
  if (!PyCFunction_CheckExact(function.ptr()) || definition(function)->ml_meth != dispatcher) {
    return;
  }
  PyMethodDef *def = definition(function);
  def->ml_meth = def->ml_flags & METH_FASTCALL
                     ? reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(guarded_fast))
                     : reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(guarded_dict));
}

}  // namespace

void guard_functions(py::handle module, py::handle example) {
  dispatcher = definition(example)->ml_meth;
  for (const auto &entry : py::dict(module.attr("__dict__"))) {
    guard_function(entry.second);
  }
}

}  // namespace modtree
