// SPDX-License-Identifier: BSD-3-Clause
#include "module/forward.h"

#include <algorithm>

#include "module/adoption.h"
#include "module/class_info.h"
#include "python/function_call.h"

namespace modtree {

namespace {

// The class's own `forward` when it is a plain function that no instance attribute hides, or null.
py::object plain_forward(ModuleObject *module) {
  // The instance first: comparing its names may run code that changes the class.
  if (instance_overrides(module, Virtual::forward)) {
    return py::object();
  }
  const ClassInfo info = class_info(Py_TYPE(module));
  return py::reinterpret_borrow<py::object>(info.overrides(Virtual::getattribute) ? nullptr
                                                                                  : info.forward());
}

}  // namespace

py::object find_forward(ModuleObject *module, bool *unbound) {
  const int tracing = is_tracing();
  if (tracing < 0) {
    return py::object();
  }
  py::object forward = tracing ? py::object() : plain_forward(module);
  *unbound = static_cast<bool>(forward);
  return *unbound || PyErr_Occurred()
             ? forward
             : py::reinterpret_steal<py::object>(PyObject_GetAttr(
                   as_object(module), tracing ? names.slow_forward : names.forward));
}

PyObject *call_unbound(PyObject *function, PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  PyObject *const *given = count ? &PyTuple_GET_ITEM(args, 0) : nullptr;
  if (!kwargs || PyDict_GET_SIZE(kwargs) == 0) {
    return call_with_copied(function, self_obj, given, count, nullptr);
  }
  constexpr Py_ssize_t kSmall = 8;
  PyObject *small[kSmall + 1];
  PyObject **stack = count > kSmall ? PyMem_New(PyObject *, count + 1) : small;
  if (!stack) {
    return PyErr_NoMemory();
  }
  stack[0] = self_obj;
  std::copy_n(given, count, stack + 1);
  PyObject *result =
      PyObject_VectorcallDict(function, stack, static_cast<std::size_t>(count) + 1, kwargs);
  if (stack != small) {
    PyMem_Free(stack);
  }
  return result;
}

}  // namespace modtree
