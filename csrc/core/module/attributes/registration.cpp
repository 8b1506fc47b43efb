// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/registration.h"

#include "family/family.h"
#include "module/attributes/reading.h"
#include "module/attributes/registration_checks.h"
#include "module/attributes/registry_edit.h"
#include "module/class_info.h"
#include "module/globals.h"
#include "module/methods.h"
#include "python/arguments.h"
#include "python/call.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

int store_persistence(ModuleObject *module, PyObject *name, bool persistent) {
  if (persistent) {
    return discard_non_persistent(module, name);
  }
  PyObject *set;
  py::object keep;
  if (require_entry(module, Slot::non_persistent_buffers_set, &set, &keep) < 0) {
    return -1;
  }
  return set_add(set, name);
}

// Raises where the module has the name, but not as an entry of that registry. The class is asked
// first, for a name that is registered too: its `__getattr__` may raise or note it.
int check_free(ModuleObject *module, Slot slot, PyObject *name) {
  const int exists = has_attribute(module, name);
  const int replaces = exists > 0 ? registry_contains(module, slot, name) : exists;
  return replaces < 0 ? -1 : exists && !replaces ? raise_already_exists(module, name) : 0;
}

}  // namespace

int store_with_hooks(ModuleObject *module, Slot slot, PyObject *hooks, PyObject *name,
                     PyObject *value) {
  const auto kept = py::reinterpret_steal<py::object>(
      run_registration_hooks(hooks, as_object(module), name, value));
  if (!kept) {
    return -1;
  }
  return store_registered(module, slot, name, kept.ptr());
}

int register_parameter(ModuleObject *module, PyObject *name, PyObject *parameter) {
  if (!has_slot(module, Slot::parameters)) {
    return raise_uninitialized(
        "cannot assign parameter before Module.__init__() call: call super().__init__() first");
  }
  if (check_own_name(name, "parameter") < 0) {
    return -1;
  }
  if (check_free(module, Slot::parameters, name) < 0) {
    return -1;
  }
  if (parameter == Py_None) {
    PyObject *parameters = require(module, Slot::parameters);
    return parameters ? mapping_set(parameters, name, parameter) : -1;
  }
  if (check_parameter(name, parameter) < 0) {
    return -1;
  }
  return store_with_hooks(module, Slot::parameters, global_hooks.parameter_registration, name,
                          parameter);
}

int register_buffer(ModuleObject *module, PyObject *name, PyObject *tensor, bool persistent) {
  if (!has_slot(module, Slot::buffers)) {
    return raise_uninitialized(
        "cannot assign buffer before Module.__init__() call: call super().__init__() first");
  }
  if (check_own_name(name, "buffer") < 0) {
    return -1;
  }
  if (check_free(module, Slot::buffers, name) < 0) {
    return -1;
  }
  if (tensor != Py_None) {
    const int tensor_like = may_be_buffer(tensor);
    if (tensor_like <= 0) {
      return tensor_like < 0
                 ? -1
                 : raise_wrong_value(
                       "cannot assign '%U' object to buffer '%U' (torch Tensor or None required)",
                       tensor, name);
    }
  }
  if (store_with_hooks(module, Slot::buffers, global_hooks.buffer_registration, name, tensor) < 0) {
    return -1;
  }
  return store_persistence(module, name, persistent);
}

int add_module(ModuleObject *module, PyObject *name, PyObject *child) {
  const int is_child = child == Py_None ? 1 : passes_for_module(child);
  if (is_child < 0) {
    return -1;
  }
  if (!is_child) {
    return slot_guard(-1, [&] {
      PyErr_Format(PyExc_TypeError, "%U is not a Module subclass", type_name(child).ptr());
      return -1;
    });
  }
  if (!PyUnicode_Check(name)) {
    return raise_no_name(name, "module");
  }
  const int exists = has_attribute(module, name);
  if (exists < 0) {
    return -1;
  }
  if (exists) {
    PyObject *modules;
    py::object keep;
    const int found = registry(module, Slot::modules, &modules, &keep);
    const int known = found < 0 ? -1 : mapping_contains(modules, name);
    if (known <= 0) {
      return known < 0 ? -1 : raise_already_exists(module, name);
    }
  }
  if (check_own_name(name, "module") < 0) {
    return -1;
  }
  return store_with_hooks(module, Slot::modules, global_hooks.module_registration, name, child);
}

PyObject *module_register_parameter(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords) {
  static const ArgumentNames kNames = {"register_parameter", {"name", "param"}, 2};
  PyObject *values[2] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0 ||
      register_parameter(as_module(self_obj), values[0], values[1]) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *module_register_buffer(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords) {
  static const ArgumentNames kNames = {"register_buffer", {"name", "tensor", "persistent"}, 2};
  PyObject *values[3] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0) {
    return nullptr;
  }
  const int persistent = values[2] ? PyObject_IsTrue(values[2]) : 1;
  if (persistent < 0 ||
      register_buffer(as_module(self_obj), values[0], values[1], persistent == 1) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *module_add_module(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords) {
  static const ArgumentNames kNames = {"add_module", {"name", "module"}, 2};
  PyObject *values[2] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0 ||
      add_module(as_module(self_obj), values[0], values[1]) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace modtree
