// SPDX-License-Identifier: BSD-3-Clause
#include "module/globals.h"

#include "module/object.h"

namespace modtree {

GlobalHooks global_hooks{};

void bind_global_hooks(py::handle m) {
  const auto make = [&](const char *name) {
    auto table = py::reinterpret_steal<py::object>(new_ordered_dict());
    if (!table) {
      throw py::error_already_set();
    }
    m.attr(name) = table;
    return table.release().ptr();
  };
  global_hooks.buffer_registration = make("_global_buffer_registration_hooks");
  global_hooks.module_registration = make("_global_module_registration_hooks");
  global_hooks.parameter_registration = make("_global_parameter_registration_hooks");
  global_hooks.backward_pre = make("_global_backward_pre_hooks");
  global_hooks.backward = make("_global_backward_hooks");
  global_hooks.forward_pre = make("_global_forward_pre_hooks");
  global_hooks.forward = make("_global_forward_hooks");
  global_hooks.forward_always_called = make("_global_forward_hooks_always_called");
  global_hooks.forward_with_kwargs = make("_global_forward_hooks_with_kwargs");
}

PyObject *run_registration_hooks(PyObject *table, PyObject *module, PyObject *name,
                                 PyObject *value) {
  auto current = py::reinterpret_borrow<py::object>(value);
  if (!has_entries(table)) {
    return current.release().ptr();
  }
  // A hook may remove itself or add another: the ones present at the start run.
  const auto hooks = py::reinterpret_steal<py::object>(PyMapping_Values(table));
  if (!hooks) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks.ptr()); ++i) {
    PyObject *result = PyObject_CallFunctionObjArgs(PyList_GET_ITEM(hooks.ptr(), i), module, name,
                                                    current.ptr(), nullptr);
    if (!result) {
      return nullptr;
    }
    if (result == Py_None) {
      Py_DECREF(result);
    } else {
      current = py::reinterpret_steal<py::object>(result);
    }
  }
  return current.release().ptr();
}

}  // namespace modtree
