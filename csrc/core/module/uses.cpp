// SPDX-License-Identifier: BSD-3-Clause
#include "module/uses.h"

#include "python/checked.h"
#include "python/native_section.h"

namespace modtree {

namespace {

// Owned; null: nobody wants to know it.
thread_local PyObject *watcher = nullptr;
// The function runs, and uses modules itself.
thread_local bool is_telling = false;

}  // namespace

int tell_use(PyObject *module, bool is_new) {
  if (!watcher || is_telling) {
    return 0;
  }
  const auto held = py::reinterpret_borrow<py::object>(module);
  const auto function = py::reinterpret_borrow<py::object>(watcher);
  is_telling = true;
  py::object result;
  {
    const OutsideNativeSection outside;
    result = py::reinterpret_steal<py::object>(
        PyObject_CallFunctionObjArgs(function.ptr(), module, is_new ? Py_True : Py_False, nullptr));
  }
  is_telling = false;
  return result ? 0 : -1;
}

py::object watch_uses(py::handle function) {
  if (!function.is_none() && !PyCallable_Check(function.ptr())) {
    PyErr_SetString(PyExc_TypeError, "expected a function or None");
    fail();
  }
  auto before = py::reinterpret_steal<py::object>(watcher);
  watcher = function.is_none() ? nullptr : Py_NewRef(function.ptr());
  watching_threads += (watcher != nullptr) - static_cast<bool>(before);
  return before ? before : py::none();
}

}  // namespace modtree
