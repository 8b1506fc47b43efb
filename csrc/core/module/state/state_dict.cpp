// SPDX-License-Identifier: BSD-3-Clause
#include "module/methods.h"

#include <memory>
#include <optional>
#include <vector>

#include "family/family.h"
#include "module/adoption.h"
#include "module/class_info.h"
#include "module/state/save_module.h"
#include "module/state/state_metadata.h"
#include "module/state/state_path.h"
#include "module/torch_facts.h"
#include "python/arguments.h"
#include "python/call.h"
#include "python/installed.h"
#include "python/owned.h"
#include "python/slot_guard.h"
#include "python/type_text.h"

namespace modtree {

namespace {

// 1 for a hook of the kind that must return None, -1 on error. The class of the table's entry says
// so, not an attribute of the function as torch's registration sets it.
int is_public_hook(PyObject *hook) {
  if (!torch_facts.state_dict_post_hooks) {
    return 0;
  }
  if (!face_count) {
    return type_lookup(Py_TYPE(hook), names.from_public_api).ptr() == Py_True;
  }
  PyObject *mark;
  const int found = optional_attr(hook, names.from_public_api, &mark);
  const Owned held = steal(found > 0 ? mark : nullptr);
  return held ? PyObject_IsTrue(held.ptr()) : found;
}

class Saver {
public:
  Saver(PyObject *destination, PyObject *keep_vars_object, bool keep_vars,
        PyObject *state_dict_type)
      : destination_(destination, keep_vars, state_dict_type),
        keep_vars_object_(keep_vars_object) {}

  // The destination is ours and new: note its metadata in a record, and keep its entries.
  void start_record(PyObject *root, PyObject *prefix) {
    record_ = std::make_unique<MetadataRecord>(prefix);
    destination_.batch = &batch_.emplace(root, destination_.object);
  }

  // The final destination (new reference); null on error.
  PyObject *run(PyObject *root, PyObject *prefix) {
    const NestedCall nested;
    if (!nested.entered()) {
      return nullptr;
    }
    Owned result = borrow(destination_.object);
    path_.push_root(root, prefix);
    if ((!PyUnicode_CheckExact(prefix) && leave_record() < 0) || enter(0) < 0) {
      return nullptr;
    }
    while (!path_.empty()) {
      if (destination_.signals.step() < 0) {
        return nullptr;
      }
      PyObject *name, *child;
      const int more = path_.top().children.next(&name, &child);
      if (more < 0) {
        return nullptr;
      }
      if (more == 0) {
        if (leave(path_.size() == 1 ? &result : nullptr) < 0) {
          return nullptr;
        }
        path_.pop();
      } else if (child != Py_None) {
        const Owned held_name = borrow(name), held_child = borrow(child);
        if (visit(name, child) < 0) {
          return nullptr;
        }
      }
    }
    if (record_ && destination_.batch->finish() < 0) {
      return nullptr;
    }
    if (record_ && PyODict_CheckExact(destination_.object)) {
      if (leave_record() < 0) {
        return nullptr;
      }
    } else if (record_) {
      const Owned capsule = steal(new_record_capsule(record_.release()));
      if (!capsule ||
          PyObject_SetAttr(destination_.object, names.metadata_record, capsule.ptr()) < 0) {
        return nullptr;
      }
    }
    return result.release().ptr();
  }

private:
  int visit(PyObject *name, PyObject *child) {
    const ClassInfo info = class_info_of(child);
    if (!info.is_module() || overrides(as_module(child), info, Virtual::state_dict)) {
      return PyErr_Occurred() ? -1 : call_child(name, child);
    }
    if (!PyUnicode_Check(name)) {
      // The TypeError, also where nothing below the child would ask for its name.
      steal(path_.child_prefix(name));
      return -1;
    }
    const Owned version =
        steal(record_ && PyUnicode_CheckExact(name) && leaves_saving_to_module(info)
                  ? versions_.find(Py_TYPE(child))
                  : nullptr);
    if (version && is_bare(child)) {
      return save_leaf(name, child, version.ptr());
    }
    if (may_have_entries(as_module(child), Slot::modules) &&
        path_.check_cycle(child, name, "state_dict") < 0) {
      return -1;
    }
    const std::uint32_t parent = path_.top().record;
    path_.push(child, name);
    return enter(parent);
  }

  // Is there nothing to do for the module but to store its own entries, as its class says...
  static bool leaves_saving_to_module(ClassInfo info) {
    return !info.overrides_any<Virtual::save_to_state_dict, Virtual::getattribute>();
  }
  // ... and as it is itself: true if it has neither children nor hooks.
  static bool is_bare(PyObject *module_obj) {
    ModuleObject *module = as_module(module_obj);
    return module->state.initialized && !may_override(module) &&
           !may_have_entries(module, Slot::modules) &&
           (!module->state.hooks || (!may_have_entries(module, Slot::state_dict_pre_hooks) &&
                                     !may_have_entries(module, Slot::state_dict_hooks)));
  }

  // Such a child takes no frame. Its version is that of its class.
  int save_leaf(PyObject *name, PyObject *child, PyObject *version) {
    struct Leaf {
      StatePath &path;
      PyObject *name;
      std::size_t position;
      Owned prefix;
    } leaf{path_, name, StatePath::take_position(), Owned()};
    const std::uint32_t number = record_->add(path_.top().record, name, version);
    const auto make_prefix = [](void *context) {
      auto &given = *static_cast<Leaf *>(context);
      given.prefix = steal(given.path.child_prefix(given.name, given.position));
      return given.prefix.ptr();
    };
    if (save_own(child, destination_, {make_prefix, &leaf}) < 0) {
      return -1;
    }
    if (is_bare(child)) {
      return 0;
    }
    // Code that ran meanwhile has given it children or hooks.
    path_.push(child, name, leaf.position);
    path_.top().record = number;
    return start_children();
  }

  // A child with a state_dict of its own.
  int call_child(PyObject *name, PyObject *child) {
    if (leave_record() < 0) {
      return -1;
    }
    const Owned prefix = steal(path_.child_prefix(name));
    const Owned method = prefix ? steal(PyObject_GetAttr(child, names.state_dict)) : Owned();
    if (!method) {
      return -1;
    }
    const Owned keywords = steal(PyTuple_Pack(3, names.destination, names.prefix, names.keep_vars));
    if (!keywords) {
      return -1;
    }
    PyObject *arguments[] = {nullptr, destination_.object, prefix.ptr(), keep_vars_object_};
    const Owned ignored = steal(PyObject_Vectorcall(
        method.ptr(), arguments + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, keywords.ptr()));
    return ignored ? 0 : -1;
  }

  // Steps (1) to (3) for the top frame, and its children made ready.
  int enter(std::uint32_t parent) {
    PyObject *module_obj = path_.top().module;
    ModuleObject *module = as_module(module_obj);
    if (note_metadata(parent) < 0) {
      return -1;
    }
    PyObject *hooks;
    Owned keep;
    if (registry(module, Slot::state_dict_pre_hooks, &hooks, &keep) < 0) {
      return -1;
    }
    if (hooks && run_pre_hooks(hooks) < 0) {
      return -1;
    }
    const auto prefix = [](void *path) { return static_cast<StatePath *>(path)->prefix(); };
    const int saved = overrides(module, Virtual::save_to_state_dict)
                          ? (PyErr_Occurred() ? -1 : call_save(module_obj))
                          : save_own(module_obj, destination_, {prefix, &path_});
    return saved < 0 ? -1 : start_children();
  }

  int start_children() {
    PyObject *children;
    Owned keep;
    const int found = registry(as_module(path_.top().module), Slot::modules, &children, &keep);
    return found <= 0 ? found : path_.top().children.start(children);
  }

  int call_save(PyObject *module) {
    if (leave_record() < 0) {
      return -1;
    }
    PyObject *prefix = path_.prefix();
    if (!prefix) {
      return -1;
    }
    PyObject *arguments[] = {module, destination_.object, prefix, keep_vars_object_};
    const Owned ignored = steal(PyObject_VectorcallMethod(
        names.save_to_state_dict, arguments, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    return ignored ? 0 : -1;
  }

  int run_pre_hooks(PyObject *hooks) {
    const Owned held_hooks = borrow(hooks);
    if (!may_give_entries(hooks)) {
      return 0;
    }
    if (leave_record() < 0) {
      return -1;
    }
    PyObject *prefix = path_.prefix();
    RegistryItems items;
    if (!prefix || items.start(hooks, AskFor::values) < 0) {
      return -1;
    }
    PyObject *key, *hook;
    int more;
    while ((more = items.next(&key, &hook)) > 0) {
      const Owned held_hook = borrow(hook);
      PyObject *arguments[] = {nullptr, path_.top().module, prefix, keep_vars_object_};
      const Owned ignored = steal(
          PyObject_Vectorcall(hook, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
      if (!ignored) {
        return -1;
      }
    }
    return more;
  }

  // Step (5) for the top frame. `result`, for the root: receives what a hook of the older kind puts
  // in place of the destination.
  int leave(Owned *result) {
    ModuleObject *module = as_module(path_.top().module);
    PyObject *hooks;
    Owned keep;
    const int found = registry(module, Slot::state_dict_hooks, &hooks, &keep);
    if (found <= 0) {
      return found;
    }
    const Owned held_hooks = borrow(hooks);
    if (!may_give_entries(hooks)) {
      return 0;
    }
    if (leave_record() < 0 || (!path_.top().local_metadata && make_local_metadata() < 0)) {
      return -1;
    }
    PyObject *prefix = path_.prefix();
    RegistryItems items;
    if (!prefix || items.start(hooks, AskFor::values) < 0) {
      return -1;
    }
    Owned destination = borrow(destination_.object);
    PyObject *key, *hook;
    int more;
    while ((more = items.next(&key, &hook)) > 0) {
      const Owned held_hook = borrow(hook);
      PyObject *arguments[] = {nullptr, path_.top().module, destination.ptr(), prefix,
                               path_.top().local_metadata};
      Owned answer = steal(
          PyObject_Vectorcall(hook, arguments + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
      if (!answer) {
        return -1;
      }
      if (answer.is_none()) {
        continue;
      }
      const int is_public = is_public_hook(hook);
      if (is_public < 0) {
        return -1;
      }
      if (is_public) {
        const std::string type = type_text(answer.ptr());
        PyErr_Format(PyExc_RuntimeError,
                     "state_dict post-hook must return None, %R returned a %.100s", hook,
                     type.c_str());
        return -1;
      }
      destination = std::move(answer);
    }
    if (more == 0 && result) {
      *result = std::move(destination);
    }
    return more;
  }

  // --- metadata
  // ---------------------------------------------------------------------------------

  int note_metadata(std::uint32_t parent) {
    bool plain;
    const Owned version = steal(module_version(path_.top().module, &plain));
    if (!version) {
      return -1;
    }
    PyObject *name = path_.top().name;
    if (record_ && plain && (!name || PyUnicode_CheckExact(name))) {
      path_.top().record = record_->add(parent, name, version.ptr());
      return 0;
    }
    if (leave_record() < 0) {
      return -1;
    }
    Owned metadata = steal(PyObject_GetAttr(destination_.object, names.metadata));
    if (!metadata) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
      }
      PyErr_Clear();
    }
    const Owned local = steal(new_local_metadata(version.ptr()));
    if (!local) {
      return -1;
    }
    if (metadata) {
      PyObject *prefix = path_.prefix();
      const Owned key = prefix ? steal(metadata_key(prefix)) : Owned();
      if (!key || PyObject_SetItem(metadata.ptr(), key.ptr(), local.ptr()) < 0) {
        return -1;
      }
    }
    path_.top().local_metadata = Py_NewRef(local.ptr());
    return 0;
  }

  // Python code is about to run that gets the destination: from here on its entries are there,
  // `_metadata` is a real dict, and the frames on the way have their part of it.
  int leave_record() {
    if (!record_) {
      return 0;
    }
    if (destination_.batch->flush() < 0) {
      return -1;
    }
    const std::unique_ptr<MetadataRecord> record = std::move(record_);
    std::vector<PyObject *> inner;
    const Owned metadata = steal(record->make(&inner));
    std::vector<Owned> held;
    for (PyObject *local : inner) {
      held.push_back(steal(local));
    }
    if (!metadata) {
      return -1;
    }
    for (std::size_t i = 0; i < path_.size(); ++i) {
      StateFrame &frame = path_[i];
      // A frame that is about to be noted has no number yet and gets its dict there.
      const bool noted = frame.record < inner.size() && (frame.record != 0 || i == 0);
      if (noted && !frame.local_metadata) {
        frame.local_metadata = Py_NewRef(inner[frame.record]);
      }
    }
    return PyObject_SetAttr(destination_.object, names.metadata, metadata.ptr());
  }

  // A destination without `_metadata`, whose walk made none.
  int make_local_metadata() {
    bool plain;
    const Owned version = steal(module_version(path_.top().module, &plain));
    path_.top().local_metadata = version ? new_local_metadata(version.ptr()) : nullptr;
    return path_.top().local_metadata ? 0 : -1;
  }

  Destination destination_;
  PyObject *keep_vars_object_;  // borrowed from the caller
  std::unique_ptr<MetadataRecord> record_;
  std::optional<EntryBatch> batch_;  // with the record
  ClassVersions versions_;
  StatePath path_;
};

// Replaces the tensors that a walk has put into `destination` by copies of their own (clone=True).
// `before` holds what was there already.
int clone_values(PyObject *destination, PyObject *before) {
  const Owned items = steal(PyMapping_Items(destination));
  if (!items) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
    PyObject *pair = PyList_GET_ITEM(items.ptr(), i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
      PyErr_Format(PyExc_TypeError,
                   "state_dict: items() of the destination, a %.200s, must give (key, value) pairs",
                   Py_TYPE(destination)->tp_name);
      return -1;
    }
    PyObject *key = PyTuple_GET_ITEM(pair, 0), *value = PyTuple_GET_ITEM(pair, 1);
    PyObject *old = before ? dict_get(before, key) : nullptr;
    if (!old && PyErr_Occurred()) {
      return -1;
    }
    TensorFamily *family;
    const int is_tensor = old == value ? 0 : family_of(value, &family);
    const int has_values = is_tensor > 0 ? family->is_uninitialized(value) : is_tensor;
    if (is_tensor < 0 || has_values < 0) {
      return -1;
    }
    if (is_tensor == 0 || has_values > 0) {
      continue;
    }
    const Owned copy = steal(PyObject_CallMethodNoArgs(value, names.clone));
    if (!copy || PyObject_SetItem(destination, key, copy.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

struct StateDictArguments {
  PyObject *destination = nullptr;
  PyObject *prefix = nullptr;
  PyObject *keep_vars = nullptr;
  PyObject *clone = nullptr;
};

int parse_state_dict_arguments(PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                               StateDictArguments *out) {
  static const ArgumentNames names_of = {
      "state_dict", {"destination", "prefix", "keep_vars", "clone"}, 0, 0};
  PyObject *values[kMaxArguments] = {};
  if (parse_arguments(names_of, args + count, 0, keywords, values) < 0) {
    return -1;
  }
  out->destination = values[0] ? values[0] : Py_None;
  out->prefix = values[1] ? values[1] : names.empty;
  out->keep_vars = values[2] ? values[2] : Py_False;
  out->clone = values[3] ? values[3] : Py_False;
  if (count == 0) {
    return 0;
  }
  if (PyErr_WarnEx(PyExc_FutureWarning,
                   "Positional args are being deprecated, pass destination, prefix and keep_vars "
                   "to state_dict() as keywords",
                   1) < 0) {
    return -1;
  }
  if (out->destination == Py_None) {
    out->destination = args[0];
  }
  if (count > 1 && PyUnicode_Check(out->prefix) && PyUnicode_GET_LENGTH(out->prefix) == 0) {
    out->prefix = args[1];
  }
  if (count > 2 && out->keep_vars == Py_False) {
    out->keep_vars = args[2];
  }
  return 0;
}

PyObject *state_dict(PyObject *self_obj, const StateDictArguments &arguments) {
  int keep_vars = 0, clone = 0;
  if (truths_or(arguments.keep_vars, &keep_vars, arguments.clone, &clone) < 0) {
    return nullptr;
  }
  PyObject *type = need_installed(installed.StateDict);
  if (!type) {
    return nullptr;
  }
  if (clone && keep_vars) {
    PyErr_SetString(PyExc_ValueError, "state_dict: keep_vars=True asks for the tensors themselves "
                                      "and clone=True for copies; give one of the two");
    return nullptr;
  }
  const bool is_new = arguments.destination == Py_None;
  if (!PyUnicode_Check(arguments.prefix)) {
    // The class is that of torch's prefix[:-1]: a dict lacks the key where slices have a hash.
    const bool lacks_key = is_new && PyDict_CheckExact(arguments.prefix) &&
                           PySlice_Type.tp_hash != PyObject_HashNotImplemented;
    PyErr_Format(lacks_key ? PyExc_KeyError : PyExc_TypeError,
                 "state_dict: prefix must be a str, got %.200s: %R",
                 Py_TYPE(arguments.prefix)->tp_name, arguments.prefix);
    return nullptr;
  }
  const Owned destination =
      steal(is_new ? PyObject_CallNoArgs(type) : Py_NewRef(arguments.destination));
  if (!destination) {
    return nullptr;
  }
  const Owned before =
      steal(clone && !is_new && PyDict_Check(destination.ptr()) ? PyDict_Copy(destination.ptr())
                                                                : nullptr);
  Saver saver(destination.ptr(), arguments.keep_vars, keep_vars, type);
  if (is_new) {
    saver.start_record(self_obj, arguments.prefix);
  }
  Owned result = steal(saver.run(self_obj, arguments.prefix));
  if (result && clone && clone_values(result.ptr(), before.ptr()) < 0) {
    return nullptr;
  }
  return result.release().ptr();
}

}  // namespace

PyObject *module_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    StateDictArguments arguments;
    if (parse_state_dict_arguments(args, count, keywords, &arguments) < 0) {
      return nullptr;
    }
    return state_dict(self_obj, arguments);
  });
}

}  // namespace modtree
