// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/registration.h"

#include <string>
#include <utility>

#include "family/family.h"
#include "module/adoption.h"
#include "module/attributes/reading.h"
#include "module/attributes/registry_edit.h"
#include "module/globals.h"
#include "module/methods.h"
#include "module/torch_facts.h"
#include "python/arguments.h"
#include "python/call.h"
#include "python/slot_guard.h"
#include "python/type_text.h"

namespace modtree {

namespace {

// KeyError with `format` filled with the arguments.
template <class... Args>
void raise_key_error(const char *format, Args... args) {
  const auto message = py::reinterpret_steal<py::object>(PyUnicode_FromFormat(format, args...));
  if (message) {
    PyErr_SetObject(PyExc_KeyError, message.ptr());
  }
}

// Who holds a name that cannot be registered: for the message only. An error may be set after it.
const char *holder_of(ModuleObject *module, PyObject *name) {
  if (registry_contains(module, Slot::parameters, name) == 1) {
    return "a parameter";
  }
  if (registry_contains(module, Slot::buffers, name) == 1) {
    return "a buffer";
  }
  if (registry_contains(module, Slot::modules, name) == 1) {
    return "a child module";
  }
  if (has_instance_attribute(module, name) == 1) {
    return "a plain attribute";
  }
  return type_has(Py_TYPE(module), name) ? "an attribute of its class"
                                         : "an attribute that its class computes";
}

// What makes room for a name. What a class has is still there after a `del`.
const char *way_out(ModuleObject *module, PyObject *name) {
  const bool is_own = registry_contains(module, Slot::parameters, name) == 1 ||
                      registry_contains(module, Slot::buffers, name) == 1 ||
                      registry_contains(module, Slot::modules, name) == 1 ||
                      has_instance_attribute(module, name) == 1;
  return is_own && !type_has(Py_TYPE(module), name) ? "delete it first, or choose another name"
                                                    : "choose another name";
}

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

int may_be_buffer(PyObject *value) {
  TensorFamily *family;
  return torch_facts.tensor_like_buffers ? is_tensor_like(value) : family_of(value, &family);
}

int raise_already_exists(ModuleObject *module, PyObject *name) {
  const std::string owner = short_type_text(module);
  const char *holder = holder_of(module, name), *way = way_out(module, name);
  if (!PyErr_Occurred()) {
    raise_key_error("attribute '%U' already exists in %s as %s; %s", name, owner.c_str(), holder,
                    way);
  }
  return -1;
}

int raise_uninitialized(const char *message) {
  if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_AttributeError, message);
  }
  return -1;
}

int raise_no_name(PyObject *name, const char *kind) {
  return slot_guard(-1, [&] {
    PyErr_Format(PyExc_TypeError, "%s name should be a string. Got %U", kind,
                 type_name(name).ptr());
    return -1;
  });
}

int check_own_name(PyObject *name, const char *kind) {
  if (!PyUnicode_Check(name)) {
    return raise_no_name(name, kind);
  }
  const int dots = PyUnicode_Contains(name, names.dot);
  if (dots != 0) {
    if (dots > 0) {
      raise_key_error("%s name can't contain \".\", got: %U", kind, name);
    }
    return -1;
  }
  if (PyUnicode_GET_LENGTH(name) == 0) {
    raise_key_error("%s name can't be empty string \"\"", kind);
    return -1;
  }
  return 0;
}

int raise_wrong_value(const char *format, PyObject *value, PyObject *name) {
  return slot_guard(-1, [&] {
    std::string text = format;
    // In a program without torch the classes that messages name are modtree's.
    if (PyMapping_HasKeyString(PyImport_GetModuleDict(), "torch") == 0) {
      for (std::size_t at; (at = text.find("torch")) != std::string::npos;) {
        text.replace(at, 5, "modtree");
      }
    }
    PyErr_Format(PyExc_TypeError, text.c_str(), type_name(value).ptr(), name);
    return -1;
  });
}

int check_leaf(PyObject *name, TensorFamily *family, PyObject *parameter) {
  const int non_leaf = family->has_grad_fn(parameter);
  if (non_leaf > 0) {
    PyErr_Format(PyExc_ValueError,
                 "Cannot assign non-leaf Tensor to parameter '%U': a parameter must be created by "
                 "the user, not computed. "
                 "To make '%U' depend on another tensor, compute it in forward()",
                 name, name);
  }
  return non_leaf == 0 ? 0 : -1;
}

int check_parameter(PyObject *name, PyObject *value) {
  ValueKind kind;
  TensorFamily *family;
  if (value_kind(value, &kind, &family) < 0) {
    return -1;
  }
  if (kind != ValueKind::parameter && !(family && family->has_bare_parameters())) {
    return raise_wrong_value(
        "cannot assign '%U' object to parameter '%U' (torch.nn.Parameter or None required)", value,
        name);
  }
  return check_leaf(name, family, value);
}

py::str type_name(py::handle value) {
  TensorFamily *family;
  if (family_of(value.ptr(), &family) < 0) {
    throw py::error_already_set();
  }
  if (family) {
    const py::object name = call_method(family->object, "type_name", value);
    if (!name) {
      throw py::error_already_set();
    }
    return py::str(name);
  }
  const bool names_itself = py::hasattr(value, "__qualname__");
  const py::object named =
      names_itself ? py::reinterpret_borrow<py::object>(value) : py::object(py::type::of(value));
  const py::object module = py::getattr(named, "__module__", py::none());
  py::str qualname(named.attr("__qualname__"));
  if (!py::isinstance<py::str>(module) || py::len(module) == 0 ||
      module.equal(py::str("builtins"))) {
    return qualname;
  }
  auto full = py::reinterpret_steal<py::object>(
      PyUnicode_FromFormat("%U.%U", module.ptr(), qualname.ptr()));
  if (!full) {
    throw py::error_already_set();
  }
  return py::str(std::move(full));
}

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
      const bool is_class =
          PyType_Check(child) && !face_count &&
          PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(child), module_base_type);
      PyErr_Format(PyExc_TypeError, "%U is not a Module subclass%s", type_name(child).ptr(),
                   is_class ? ": it is a class; call it, as in nn.ReLU()" : "");
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
