// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/load_module.h"

#include "module/class_info.h"
#include "module/methods.h"
#include "module/state/key_index.h"
#include "module/state/load_entry.h"
#include "module/state/saved_names.h"
#include "module/state/state_path.h"
#include "python/arguments.h"
#include "python/owned.h"
#include "python/signals.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// The entry of any mapping: 1 and *value set, 0 when absent, -1 on error.
int find_entry(PyObject *mapping, PyObject *key, Owned *value) {
  if (PyDict_CheckExact(mapping)) {
    PyObject *found = dict_get(mapping, key);
    if (!found) {
      return PyErr_Occurred() ? -1 : 0;
    }
    *value = borrow(found);
    return 1;
  }
  const int present = PySequence_Contains(mapping, key);
  if (present <= 0) {
    return present;
  }
  *value = steal(PyObject_GetItem(mapping, key));
  return *value ? 1 : -1;
}

// {name: tensor} of what a state dict has of this module itself: new reference, null on error.
PyObject *local_state(ModuleObject *module) {
  Owned state = steal(PyDict_New());
  PyObject *mapping, *name, *tensor;
  RegistryItems items;
  int more;
  Owned keep;
  if (!state || registry(module, Slot::parameters, &mapping, &keep) < 0 ||
      items.start(mapping) < 0) {
    return nullptr;
  }
  while ((more = items.next(&name, &tensor)) > 0) {
    const Owned held_name = borrow(name), held_tensor = borrow(tensor);
    if (tensor != Py_None && PyDict_SetItem(state.ptr(), name, tensor) < 0) {
      return nullptr;
    }
  }
  if (more < 0 || registry(module, Slot::buffers, &mapping, &keep) < 0 ||
      items.start(mapping) < 0) {
    return nullptr;
  }
  while ((more = items.next(&name, &tensor)) > 0) {
    const Owned held_name = borrow(name), held_tensor = borrow(tensor);
    const int left_out = is_non_persistent(module, name);
    const bool is_saved = left_out == 0 && tensor != Py_None;
    if (left_out < 0 || (is_saved && PyDict_SetItem(state.ptr(), name, tensor) < 0)) {
      return nullptr;
    }
  }
  return more < 0 ? nullptr : state.release().ptr();
}

int run_pre_hooks(PyObject *module, PyObject *const *arguments) {
  PyObject *hooks, *key, *hook;
  Owned keep;
  if (registry(as_module(module), Slot::load_state_dict_pre_hooks, &hooks, &keep) < 0) {
    return -1;
  }
  RegistryItems items;
  if (items.start(hooks, AskFor::values) < 0) {
    return -1;
  }
  int more;
  while ((more = items.next(&key, &hook)) > 0) {
    const Owned held_hook = borrow(hook);
    const Owned ignored = steal(PyObject_Vectorcall(hook, arguments, 7, nullptr));
    if (!ignored) {
      return -1;
    }
  }
  return more;
}

// The flag that a load with assign=True puts into local_metadata; -1 on error.
int assign_flag(PyObject *local_metadata) {
  const Owned flag = steal(
      PyObject_CallMethod(local_metadata, "get", "OO", names.assign_to_params_buffers, Py_False));
  return flag ? PyObject_IsTrue(flag.ptr()) : -1;
}

int load_entries(PyObject *module, PyObject *state_dict, PyObject *prefix, PyObject *local,
                 const LoadMode &mode, bool strict, const LoadLists &lists) {
  NoGradScopes no_grad;
  SignalCheck signals;
  Py_ssize_t at = 0;
  PyObject *name, *tensor;
  while (dict_next_item(local, &at, &name, &tensor)) {
    const Owned key = steal(signals.step() < 0 ? nullptr : state_key(prefix, name));
    Owned source, message;
    const int found = key ? find_entry(state_dict, key.ptr(), &source) : -1;
    if (found < 0) {
      return -1;
    }
    if (found == 0) {
      if (strict && append_to(lists.missing, key.ptr()) < 0) {
        return -1;
      }
      continue;
    }
    LoadEntry entry{module, name, key.ptr(), tensor, nullptr};
    if (family_of(tensor, &entry.family) < 0) {
      return -1;
    }
    int good = check_entry(entry, mode, &source, &message);
    if (good > 1 && warn_of_meta_copy(key.ptr()) < 0) {
      return -1;
    }
    if (good > 0) {
      good =
          no_grad.enter(entry.family) < 0 ? -1 : store_entry(entry, mode, source.ptr(), &message);
    }
    if (good < 0 || (good == 0 && append_to(lists.errors, message.ptr()) < 0)) {
      return -1;
    }
  }
  return no_grad.exit();
}

int load_extra_state(PyObject *module, PyObject *state_dict, PyObject *extra_key, bool strict,
                     const LoadLists &lists) {
  Owned value;
  const int found = find_entry(state_dict, extra_key, &value);
  if (found < 0) {
    return -1;
  }
  if (!has_extra_state_setter(module)) {
    return found && strict ? append_to(lists.unexpected, extra_key) : 0;
  }
  if (!found) {
    return strict ? append_to(lists.missing, extra_key) : 0;
  }
  const Owned ignored =
      steal(PyObject_CallMethodOneArg(module, names.set_extra_state, value.ptr()));
  return ignored ? 0 : -1;
}

// 1 when a key below `prefix` has no place in the module or below its children; -1 on error.
int is_unexpected(PyObject *children, PyObject *key, Py_ssize_t prefix_size, PyObject *local) {
  const Py_ssize_t size = PyUnicode_GET_LENGTH(key);
  const Py_ssize_t dot = PyUnicode_FindChar(key, '.', prefix_size, size, 1);
  if (dot == -2) {
    return -1;
  }
  const Owned atom = steal(PyUnicode_Substring(key, prefix_size, dot < 0 ? size : dot));
  if (!atom) {
    return -1;
  }
  const int known =
      dot < 0 ? PyDict_Contains(local, atom.ptr()) : mapping_contains(children, atom.ptr());
  return known < 0 ? -1 : !known;
}

int report_unexpected(PyObject *module, PyObject *state_dict, PyObject *prefix, PyObject *extra_key,
                      PyObject *local, PyObject *unexpected) {
  const Owned keys = steal(PySequence_List(state_dict));
  PyObject *children;
  Owned asked;
  if (!keys || registry(as_module(module), Slot::modules, &children, &asked) < 0) {
    return -1;
  }
  const Owned held_children = borrow(children);
  const Py_ssize_t prefix_size = PyUnicode_GET_LENGTH(prefix);
  SignalCheck signals;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.ptr()); ++i) {
    if (signals.step() < 0) {
      return -1;
    }
    PyObject *key = PyList_GET_ITEM(keys.ptr(), i);
    if (!PyUnicode_Check(key)) {
      return raise_bad_key(key);
    }
    const Py_ssize_t below = PyUnicode_Tailmatch(key, prefix, 0, PY_SSIZE_T_MAX, -1);
    if (below <= 0) {
      if (below < 0) {
        return -1;
      }
      continue;
    }
    const int same = PyUnicode_Compare(key, extra_key);
    if (same == 0) {
      continue;
    }
    const int bad = is_unexpected(children, key, prefix_size, local);
    if (bad < 0 || (bad && append_to(unexpected, key) < 0)) {
      return -1;
    }
  }
  return 0;
}

}  // namespace

int append_to(PyObject *list, PyObject *item) {
  if (PyList_CheckExact(list)) {
    return PyList_Append(list, item);
  }
  const Owned ignored = steal(PyObject_CallMethod(list, "append", "O", item));
  return ignored ? 0 : -1;
}

int load_own(PyObject *module, PyObject *state_dict, PyObject *prefix, PyObject *local_metadata,
             PyObject *strict, const LoadLists &lists) {
  PyObject *const arguments[] = {state_dict,    prefix,           local_metadata, strict,
                                 lists.missing, lists.unexpected, lists.errors};
  if (run_pre_hooks(module, arguments) < 0) {
    return -1;
  }
  if (!PyUnicode_Check(prefix)) {
    PyErr_Format(PyExc_TypeError, "_load_from_state_dict: prefix must be a str, got %.200s: %R",
                 Py_TYPE(prefix)->tp_name, prefix);
    return -1;
  }
  const int is_strict = PyObject_IsTrue(strict);
  const int assign = is_strict < 0 ? -1 : assign_flag(local_metadata);
  const int swap = assign < 0 ? -1 : switch_anywhere(ConversionSwitch::swap);
  if (swap < 0) {
    return -1;
  }
  const LoadMode mode{assign != 0, swap != 0};
  const Owned local = steal(local_state(as_module(module)));
  const Owned extra_key = local ? steal(extra_state_key(prefix)) : Owned();
  if (!extra_key ||
      load_entries(module, state_dict, prefix, local.ptr(), mode, is_strict, lists) < 0 ||
      load_extra_state(module, state_dict, extra_key.ptr(), is_strict, lists) < 0) {
    return -1;
  }
  return is_strict ? report_unexpected(module, state_dict, prefix, extra_key.ptr(), local.ptr(),
                                       lists.unexpected)
                   : 0;
}

PyObject *module_load_from_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                      PyObject *keywords) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    static const ArgumentNames names_of = {"_load_from_state_dict",
                                           {"state_dict", "prefix", "local_metadata", "strict",
                                            "missing_keys", "unexpected_keys", "error_msgs"},
                                           7};
    PyObject *values[kMaxArguments] = {};
    if (parse_arguments(names_of, args, count, keywords, values) < 0 ||
        load_own(self_obj, values[0], values[1], values[2], values[3],
                 LoadLists{values[4], values[5], values[6]}) < 0) {
      return nullptr;
    }
    return Py_NewRef(Py_None);
  });
}

}  // namespace modtree
