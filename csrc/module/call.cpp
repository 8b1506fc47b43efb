// SPDX-License-Identifier: BSD-3-Clause
#include "module/call.h"

#include "module/adoption.h"
#include "module/class_info.h"
#include "module/globals.h"
#include "module/hooked_call.h"

namespace modtree {

namespace {

// 1 when a call must go through the hooks, 0 when not, -1 with AttributeError before
// Module.__init__.
int has_call_hooks(ModuleObject *module) {
  if (has_entries(global_hooks.forward_pre) || has_entries(global_hooks.forward) ||
      has_entries(global_hooks.backward) || has_entries(global_hooks.backward_pre)) {
    return 1;
  }
  if (!module->state.exposed && module->state.initialized && !module->state.hooks) {
    return 0;
  }
  for (const Slot slot : {Slot::backward_hooks, Slot::backward_pre_hooks, Slot::forward_hooks,
                          Slot::forward_pre_hooks}) {
    PyObject *table;
    py::object keep;
    if (registry(module, slot, &table, &keep) < 0) {
      return -1;
    }
    if (const int has_hooks = table_has_hooks(table)) {
      return has_hooks;
    }
  }
  return 0;
}

PyObject *call_forward(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  // Owned: a patch of the class during the call must not free the function that runs.
  bool unbound = false;
  const py::object forward = find_forward(as_module(self_obj), &unbound);
  if (!forward) {
    return nullptr;
  }
  return unbound ? call_unbound(forward.ptr(), self_obj, args, kwargs)
                 : PyObject_Call(forward.ptr(), args, kwargs);
}

// 1 and a new reference when the instance or class has a compiled implementation, 0 when not, -1 on
// error.
int compiled_implementation(ModuleObject *module, PyObject **compiled) {
  if (!overrides(module, Virtual::compiled_call_impl)) {
    return 0;
  }
  *compiled = PyObject_GetAttr(as_object(module), names.compiled_call_impl);
  if (!*compiled) {
    return -1;
  }
  if (*compiled == Py_None) {
    Py_CLEAR(*compiled);
    return 0;
  }
  return 1;
}

}  // namespace

PyObject *module_call_impl(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  const int hooked = has_call_hooks(as_module(self_obj));
  if (hooked < 0) {
    return nullptr;
  }
  return hooked ? call_with_hooks(self_obj, args, kwargs) : call_forward(self_obj, args, kwargs);
}

PyObject *module_tp_call(PyObject *self_obj, PyObject *args, PyObject *kwargs) {
  ModuleObject *self = as_module(self_obj);
  ++native_counts.calls;
  PyObject *compiled = nullptr;
  const int is_compiled = compiled_implementation(self, &compiled);
  if (is_compiled != 0) {
    PyObject *result = is_compiled > 0 ? PyObject_Call(compiled, args, kwargs) : nullptr;
    Py_XDECREF(compiled);
    return result;
  }
  if (overrides(self, Virtual::call_impl)) {
    const auto method =
        py::reinterpret_steal<py::object>(PyObject_GetAttr(self_obj, names.call_impl));
    return method ? PyObject_Call(method.ptr(), args, kwargs) : nullptr;
  }
  return module_call_impl(self_obj, args, kwargs);
}

}  // namespace modtree
