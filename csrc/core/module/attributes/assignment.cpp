// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/assignment.h"

#include <cstring>
#include <utility>

#include "family/family.h"
#include "module/adoption.h"
#include "module/attributes/assignment_rollback.h"
#include "module/attributes/name_facts.h"
#include "module/attributes/plain_attributes.h"
#include "module/attributes/reading.h"
#include "module/attributes/registration.h"
#include "module/attributes/registry_edit.h"
#include "module/bases_behind.h"
#include "module/class_info.h"
#include "module/globals.h"
#include "module/torch_facts.h"
#include "module/uses.h"
#include "python/call.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/type_text.h"

namespace modtree {

namespace {

int warn_of_foreign(PyObject *function, PyObject *parent, PyObject *name, PyObject *child) {
  return call_installed(function, parent, name, child) ? 0 : -1;
}

// -1 when the entry is missing and the class has nothing for it.
int check_entry(ModuleObject *module, Slot slot) {
  PyObject *value;
  py::object keep;
  return registry(module, slot, &value, &keep) < 0 ? -1 : 0;
}

int remove_from_registry(ModuleObject *module, PyObject *name, Slot slot) {
  PyObject *mapping;
  py::object keep;
  const int found = registry(module, slot, &mapping, &keep);
  return found <= 0 ? found : mapping_discard(mapping, name);
}

// True only if there is certainly no entry of that name. Runs no user code.
inline bool lacks(PyObject *mapping, PyObject *name) {
  return !mapping || (PyDict_CheckExact(mapping) && dict_lacks_str(mapping, name));
}

// True only if a plain name is certainly not in the instance dict, in the two registries or among
// the non-persistent buffers. Runs no user code.
template <PyObject *ModuleState::*first, PyObject *ModuleState::*second>
inline bool is_nowhere_else(const ModuleObject *module, PyObject *name) {
  const ModuleState &state = module->state;
  return state.initialized && !state.exposed && lacks(module->dict, name) &&
         lacks(state.*first, name) && lacks(state.*second, name) &&
         (!state.non_persistent ||
          (PyAnySet_CheckExact(state.non_persistent) && PySet_GET_SIZE(state.non_persistent) == 0));
}

// Removes a name from the instance dict, two registries and the non-persistent set.
template <Slot first, Slot second>
[[gnu::noinline]] int remove_from_others(ModuleObject *module, PyObject *name) {
  // Before anything is removed: a missing registry leaves everything as it is.
  const bool may_lack = module->state.exposed || !module->state.initialized;
  if (may_lack && (check_entry(module, first) < 0 || check_entry(module, second) < 0 ||
                   check_entry(module, Slot::non_persistent_buffers_set) < 0)) {
    return -1;
  }
  const SpecialName *special = find_special_name(name);
  const int entry = special ? special->slot : -1;
  if (entry >= 0) {
    if (delete_slot(module, static_cast<Slot>(entry)) < 0) {
      return -1;
    }
  } else if (module->dict && !lacks(module->dict, name) && remove_attribute(module, name) < 0) {
    return -1;
  }
  // An entry of that name is gone now.
  const auto remains = [entry](Slot slot) { return entry != static_cast<int>(slot); };
  if ((remains(first) && remove_from_registry(module, name, first) < 0) ||
      (remains(second) && remove_from_registry(module, name, second) < 0)) {
    return -1;
  }
  const bool has_set = remains(Slot::non_persistent_buffers_set);
  return has_set ? discard_non_persistent(module, name) : 0;
}

// True if it is remembered that the name is a plain one under which the class has nothing.
inline bool is_known_plain(PyTypeObject *type, PyObject *name) {
  return name_facts.find(type_version(type), name) == NameFacts::kPlain;
}

// The registry to which an entry is added: borrowed, null on error.
template <Slot slot, PyObject *ModuleState::*cell>
inline PyObject *registry_to_fill(ModuleObject *module) {
  // In exposed mode the cells are empty.
  PyObject *mapping = module->state.*cell;
  module->state.lacks_training = false;
  return mapping ? mapping : require(module, slot);
}

// True if a plain dict store may put in a parameter or a module: no hook, override, class
// attribute, internal name or registry of another class is in the way.
inline bool stores_directly(ModuleObject *module, PyObject *name, PyObject *hooks,
                            bool known_plain = false) {
  return !has_entries(hooks) && Py_TYPE(module)->tp_getattro == module_tp_getattro &&
         (known_plain || (is_plain_name(Py_TYPE(module), name) && !has_odd_table(module)));
}

int call_register_parameter(ModuleObject *module, PyObject *name, PyObject *value) {
  if (!overrides(module, Virtual::register_parameter)) {
    return register_parameter(module, name, value);
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  PyObject *result =
      PyObject_CallMethodObjArgs(as_object(module), names.register_parameter, name, value, nullptr);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

// Through register_parameter() of the class, or Module's own.
[[gnu::noinline]] int register_by_call(ModuleObject *module, PyObject *name, PyObject *value) {
  AssignmentRollback rollback;
  if (PyErr_Occurred() || rollback.save(module, name) < 0) {
    return -1;
  }
  if (remove_from_others<Slot::buffers, Slot::modules>(module, name) < 0 ||
      call_register_parameter(module, name, value) < 0) {
    rollback.restore(module, name);
    return -1;
  }
  return 0;
}

int assign_parameter(ModuleObject *module, PyObject *name, PyObject *value, TensorFamily *family) {
  if (!has_slot(module, Slot::parameters)) {
    return raise_uninitialized(
        "cannot assign parameters before Module.__init__() call: call super().__init__() first");
  }
  const bool plain = !module->state.exposed && is_known_plain(Py_TYPE(module), name);
  if (stores_directly(module, name, global_hooks.parameter_registration, plain) &&
      !overrides(module, Virtual::register_parameter)) {
    if (!plain) {
      const int known = registry_contains(module, Slot::parameters, name);
      if (known < 0 || (!known && check_own_name(name, "parameter") < 0)) {
        return -1;
      }
    }
    if (check_leaf(name, family, value) < 0) {
      return -1;
    }
    if (!is_nowhere_else<&ModuleState::buffers, &ModuleState::modules>(module, name) &&
        remove_from_others<Slot::buffers, Slot::modules>(module, name) < 0) {
      return -1;
    }
    PyObject *parameters = registry_to_fill<Slot::parameters, &ModuleState::parameters>(module);
    return parameters ? mapping_set(parameters, name, value) : -1;
  }
  return register_by_call(module, name, value);
}

// A tensor without a mark, under the name of a parameter.
[[gnu::noinline]] int assign_bare_parameter(ModuleObject *module, PyObject *name, PyObject *value,
                                            TensorFamily *family) {
  PyObject *parameters;
  py::object keep;
  const int found = registry(module, Slot::parameters, &parameters, &keep);
  const auto held = py::reinterpret_borrow<py::object>(parameters);
  const auto old =
      py::reinterpret_steal<py::object>(found > 0 ? PyObject_GetItem(held.ptr(), name) : nullptr);
  if (!old) {
    return -1;
  }
  if (old.is_none()) {
    return assign_parameter(module, name, value, family);
  }
  const auto stored = py::reinterpret_steal<py::object>(family->in_place_of(value, old.ptr()));
  return stored ? assign_parameter(module, name, stored.ptr(), family) : -1;
}

// True if the name has a dot, or is empty. -1 on error.
inline int is_odd_child_name(PyObject *name) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(name);
  if (PyUnicode_IS_COMPACT_ASCII(name)) {
    return length == 0 ||
           std::memchr(PyUnicode_1BYTE_DATA(name), '.', static_cast<std::size_t>(length));
  }
  const int dots = PyUnicode_Contains(name, names.dot);
  return dots < 0 ? -1 : dots || length == 0;
}

// For a name without a child yet.
[[gnu::noinline]] int warn_of_odd_child_name(ModuleObject *module, PyObject *name) {
  if (const int known = registry_contains(module, Slot::modules, name)) {
    return known < 0 ? -1 : 0;
  }
  const std::string owner = short_type_text(module);
  return PyErr_WarnFormat(PyExc_UserWarning, 1,
                          "the child module name %R of %.200s contains a dot or is empty: its "
                          "entries may collide with others in "
                          "state_dict(), and get_submodule() cannot reach it",
                          name, owner.c_str());
}

int assign_module(ModuleObject *module, PyObject *name, PyObject *value) {
  if (!has_slot(module, Slot::modules)) {
    return raise_uninitialized(
        "cannot assign module before Module.__init__() call: call super().__init__() first");
  }
  const bool plain = !module->state.exposed && is_known_plain(Py_TYPE(module), name);
  const int is_odd = plain ? 0 : is_odd_child_name(name);
  if (is_odd != 0 && (is_odd < 0 || warn_of_odd_child_name(module, name) < 0)) {
    return -1;
  }
  if (!has_entries(global_hooks.module_registration)) {
    if (!(plain &&
          is_nowhere_else<&ModuleState::parameters, &ModuleState::buffers>(module, name)) &&
        remove_from_others<Slot::parameters, Slot::buffers>(module, name) < 0) {
      return -1;
    }
    PyObject *modules = registry_to_fill<Slot::modules, &ModuleState::modules>(module);
    return modules ? mapping_set(modules, name, value) : -1;
  }
  AssignmentRollback rollback;
  if (rollback.save(module, name) < 0) {
    return -1;
  }
  if (remove_from_others<Slot::parameters, Slot::buffers>(module, name) < 0 ||
      store_with_hooks(module, Slot::modules, global_hooks.module_registration, name, value) < 0) {
    rollback.restore(module, name);
    return -1;
  }
  return 0;
}

// 1 if a register_buffer that is not ours takes `persistent`. A patch of Module's does whatever its
// signature says, in most torches. -1 on error.
int takes_persistent(const py::object &method) {
  if (torch_facts.patches_take_persistent && PyMethod_Check(method.ptr()) &&
      is_of_module_class(PyMethod_GET_FUNCTION(method.ptr()), Virtual::register_buffer)) {
    return 1;
  }
  const py::object inspect = import_attribute("inspect", "signature");
  const py::object signature = inspect ? call(inspect, method) : py::object();
  const py::object parameters = signature ? get_attribute(signature, "parameters") : py::object();
  return parameters ? PySequence_Contains(parameters.ptr(), names.persistent) : -1;
}

// Calls an overridden register_buffer, which may be older than the `persistent` argument.
int call_overridden_register_buffer(ModuleObject *module, PyObject *name, PyObject *value,
                                    bool persistent) {
  const py::object method = get_attribute(as_object(module), "register_buffer");
  const int takes = method ? takes_persistent(method) : -1;
  if (takes < 0) {
    return -1;
  }
  if (takes) {
    return call(method, name, value, persistent ? Py_True : Py_False) ? 0 : -1;
  }
  if (persistent) {
    return call(method, name, value) ? 0 : -1;
  }
  PyErr_Format(
      PyExc_RuntimeError,
      "Registering a non-persistent buffer on a Module subclass whose register_buffer() has no "
      "argument 'persistent' is not possible: add the argument to %.200s.register_buffer",
      type_short_name(Py_TYPE(module)));
  return -1;
}

int is_persistent(ModuleObject *module, PyObject *name, PyObject *value, bool is_buffer_object) {
  if (is_buffer_object) {
    const auto persistent =
        py::reinterpret_steal<py::object>(PyObject_GetAttr(value, names.persistent));
    return persistent ? PyObject_IsTrue(persistent.ptr()) : -1;
  }
  py::object set;
  if (own_entry(module, Slot::non_persistent_buffers_set, &set) < 0) {
    return -1;
  }
  const int listed = set ? PySequence_Contains(set.ptr(), name) : 0;
  return listed < 0 ? -1 : !listed;
}

int assign_buffer(ModuleObject *module, PyObject *name, PyObject *value, bool is_buffer_object,
                  bool known) {
  if (!has_slot(module, Slot::buffers)) {
    return raise_uninitialized(
        "cannot assign buffer before Module.__init__() call: call super().__init__() first");
  }
  if (value != Py_None) {
    const int tensor_like = may_be_buffer(value);
    if (tensor_like <= 0) {
      return tensor_like < 0 ? -1
                             : raise_wrong_value(torch_facts.buffer_class
                                                     ? "cannot assign '%U' as buffer '%U' "
                                                       "(torch.nn.Buffer, torch.Tensor or None "
                                                       "expected)"
                                                     : "cannot assign '%U' as buffer '%U' "
                                                       "(torch.Tensor or None expected)",
                                                 value, name);
    }
  }
  if (known && !is_buffer_object &&
      stores_directly(module, name, global_hooks.buffer_registration) &&
      !overrides(module, Virtual::register_buffer) &&
      has_slot(module, Slot::non_persistent_buffers_set)) {
    PyObject *buffers = require(module, Slot::buffers);
    return buffers ? mapping_set(buffers, name, value) : -1;
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  if (!torch_facts.buffer_class) {
    return store_with_hooks(module, Slot::buffers, global_hooks.buffer_registration, name, value);
  }
  const int persistent = is_persistent(module, name, value, is_buffer_object);
  if (persistent < 0) {
    return -1;
  }
  const bool overridden = overrides(module, Virtual::register_buffer);
  if (PyErr_Occurred()) {
    return -1;
  }
  return overridden ? call_overridden_register_buffer(module, name, value, persistent == 1)
                    : register_buffer(module, name, value, persistent == 1);
}

// `facts`: of the type of the value.
[[gnu::noinline]] int assign_other(ModuleObject *module, PyObject *name, PyObject *value,
                                   const TypeFacts &facts) {
  ValueKind kind;
  TensorFamily *family;
  // A module is not asked for its `__class__`.
  static constexpr TypeFacts kNotAsked;
  const bool is_module = facts.may_claim_class && class_info_of(value).is_module();
  if (value_kind_by(is_module ? kNotAsked : facts, value, &kind, &family) < 0) {
    return -1;
  }
  if (kind == ValueKind::parameter) {
    return assign_parameter(module, name, value, family);
  }
  int known = registry_contains(module, Slot::parameters, name);
  if (known != 0) {
    if (known > 0 && value == Py_None) {
      return call_register_parameter(module, name, value);
    }
    if (known > 0 && kind == ValueKind::tensor && family->has_bare_parameters()) {
      return assign_bare_parameter(module, name, value, family);
    }
    return known < 0
               ? -1
               : raise_wrong_value(
                     "cannot assign '%U' as parameter '%U' (torch.nn.Parameter or None expected)",
                     value, name);
  }
  if (!family) {
    const int is_child = is_module || class_info_of(value).is_module() ? 1
                         : facts.may_claim_class                       ? passes_for_module(value)
                                                                       : 0;
    if (is_child != 0) {
      return is_child < 0 ? -1 : assign_module(module, name, value);
    }
  }
  known = registry_contains(module, Slot::modules, name);
  if (known != 0) {
    if (known > 0 && value == Py_None) {
      return store_with_hooks(module, Slot::modules, global_hooks.module_registration, name, value);
    }
    return known < 0
               ? -1
               : raise_wrong_value(
                     "cannot assign '%U' as child module '%U' (torch.nn.Module or None expected)",
                     value, name);
  }
  known = registry_contains(module, Slot::buffers, name);
  if (known < 0) {
    return -1;
  }
  if (known || (kind == ValueKind::buffer && torch_facts.buffer_class)) {
    return assign_buffer(module, name, value, kind == ValueKind::buffer, known != 0);
  }
  if (kind == ValueKind::foreign_module && warn_of_foreign_child(module, name, value) < 0) {
    return -1;
  }
  return write_plain(module, name, value);
}

// `del module.name` (BEHAVIOUR 2.9).
int delete_attribute(ModuleObject *module, PyObject *name) {
  for (const Slot slot : {Slot::parameters, Slot::buffers, Slot::modules}) {
    PyObject *mapping;
    py::object keep;
    const int found = registry(module, slot, &mapping, &keep);
    const int deleted = found > 0 ? mapping_discard(mapping, name) : found;
    if (deleted < 0) {
      return -1;
    }
    if (deleted) {
      return slot == Slot::buffers ? discard_non_persistent(module, name) : 0;
    }
  }
  return hands_writes_on(Py_TYPE(module)) ? hand_write_on(module, name, nullptr)
                                          : delete_plain(module, name);
}

}  // namespace

int warn_of_foreign_child(ModuleObject *module, PyObject *name, PyObject *child) {
  return warn_of_foreign(installed.warn_of_foreign_child, as_object(module), name, child);
}

int warn_of_foreign_parent(PyObject *parent, PyObject *name, PyObject *child) {
  const int foreign = is_foreign_module(parent);
  return foreign > 0 ? warn_of_foreign(installed.warn_of_foreign_parent, parent, name, child)
                     : foreign;
}

int assign(ModuleObject *module, PyObject *name, PyObject *value) {
  const TypeFacts facts = facts_of_type(Py_TYPE(value));
  return facts.are_parameters ? assign_parameter(module, name, value, facts.family)
                              : assign_other(module, name, value, facts);
}

int module_tp_setattro(PyObject *self_obj, PyObject *name, PyObject *value) {
  if (c_stack_ends() || note_use(self_obj) < 0) {
    return -1;
  }
  const NativeSection in_section;
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "attribute name must be string, not '%.200s'",
                 Py_TYPE(name)->tp_name);
    return -1;
  }
  if (face_count) {
    native_counts.writes.add();
    if (Py_TYPE(self_obj)->tp_setattro != module_tp_setattro) {
      take_native_slots(Py_TYPE(self_obj));
    }
  }
  return value ? assign(as_module(self_obj), name, value)
               : delete_attribute(as_module(self_obj), name);
}

}  // namespace modtree
