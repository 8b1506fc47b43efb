// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/save_module.h"

#include <algorithm>
#include <utility>

#include "family/family.h"
#include "module/class_info.h"
#include "module/methods.h"
#include "module/state/saved_names.h"
#include "module/state/state_path.h"
#include "module/walk/last_roots.h"
#include "python/arguments.h"
#include "python/installed.h"
#include "python/ordered_dict.h"
#include "python/owned.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// --- the entries of a walk, see EntryBatch

// What is known of the keys of walks from one root.
struct KnownKeys {
  PyObject *keys = nullptr;  // a dict with None for every value, handed out to nobody; or null
  // Keys that were noted may be of no use each time: where walks of other trees come between, which
  // take their places in the memo of names, the same keys are other objects. So more and more walks
  // pass before they are noted again.
  int pause = 0;
  int left_of_pause = 0;
};
constexpr int kLongestPause = 63;
LastRoots<KnownKeys> known_roots;

// Null without an error when out of memory.
Owned keys_of(PyObject *dict) {
  Owned keys = steal(PyDict_New());
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (keys && dict_next_item(dict, &position, &key, &value)) {
    const Owned held = borrow(key);
    if (PyDict_SetItem(keys.ptr(), key, Py_None) < 0) {
      keys = Owned();
    }
  }
  if (!keys) {
    PyErr_Clear();
  }
  return keys;
}

// After a walk that could not use known keys. After two walks from the same root a third is likely.
void note_keys(PyObject *root, PyObject *destination) {
  KnownKeys *known = known_roots.find(root);
  if (!known) {
    const Owned old = steal(std::exchange(known_roots.remember(root), {}).keys);
    return;
  }
  if (known->left_of_pause > 0) {
    --known->left_of_pause;
    const Owned old = steal(std::exchange(known->keys, nullptr));
    return;
  }
  Owned keys = keys_of(destination);
  // Found anew: the collector may have run other walks meanwhile.
  known = known_roots.find(root);
  if (known) {
    known->pause = std::min(2 * known->pause + 1, kLongestPause);
    known->left_of_pause = known->pause;
    const Owned old = steal(std::exchange(known->keys, keys.release().ptr()));
  }
}

void note_use(PyObject *root) {
  if (KnownKeys *known = known_roots.find(root)) {
    known->pause = known->left_of_pause = 0;
  }
}

}  // namespace

EntryBatch::EntryBatch(PyObject *root, PyObject *destination)
    : root_(root),
      destination_(destination) {
  const KnownKeys *known = known_roots.find(root);
  keeps_ = known && known->keys && can_fill_ordered_dict(destination);
  if (keeps_) {
    entries_.reserve(static_cast<std::size_t>(PyDict_GET_SIZE(known->keys)));
  }
}

void EntryBatch::clear() {
  for (const DictEntry &entry : std::exchange(entries_, {})) {
    Py_DECREF(entry.key);
    Py_DECREF(entry.value);
  }
}

int EntryBatch::add(PyObject *key, PyObject *value) {
  if (!keeps_) {
    return ordered_dict_set(destination_, key, value);
  }
  entries_.push_back({key, value});
  Py_INCREF(key);
  Py_INCREF(value);
  return 0;
}

int EntryBatch::flush() {
  keeps_ = false;
  for (const DictEntry &entry : entries_) {
    if (ordered_dict_set(destination_, entry.key, entry.value) < 0) {
      return -1;
    }
  }
  clear();
  return 0;
}

int EntryBatch::finish() {
  const KnownKeys *known = keeps_ ? known_roots.find(root_) : nullptr;
  const Owned keys = borrow(known ? known->keys : nullptr);
  if (keys && fill_ordered_dict(destination_, keys.ptr(), entries_.data(),
                                static_cast<Py_ssize_t>(entries_.size()))) {
    entries_.clear();
    note_use(root_);
    return 0;
  }
  if (flush() < 0) {
    return -1;
  }
  // Other keys than plain strs would run user code where they are noted, and never be of use.
  const Py_ssize_t size = PyDict_GET_SIZE(destination_);
  if (size >= kFewest && size <= kMost && can_fill_ordered_dicts() && has_only_strs(destination_)) {
    note_keys(root_, destination_);
  }
  return 0;
}

// --- one module

namespace {

// What is stored for a tensor: new reference, null on error.
PyObject *saved_value(PyObject *tensor, const Destination &destination) {
  if (destination.keep_vars) {
    return Py_NewRef(tensor);
  }
  TensorFamily *family;
  const int is_tensor = destination.families.find(tensor, &family);
  if (is_tensor < 0) {
    return nullptr;
  }
  return is_tensor ? family->detach(tensor) : PyObject_CallMethodNoArgs(tensor, names.detach);
}

int save_entry(const Destination &destination, PyObject *prefix, PyObject *name, PyObject *tensor) {
  const Owned key = steal(state_key(prefix, name));
  const Owned value = key ? steal(saved_value(tensor, destination)) : Owned();
  return value ? destination.store(key.ptr(), value.ptr()) : -1;
}

}  // namespace

Destination::Destination(PyObject *destination, bool keep_vars, PyObject *state_dict_type)
    : object(destination),
      set(PyObject_SetItem),
      keep_vars(keep_vars) {
  if (PyDict_CheckExact(destination)) {
    set = PyDict_SetItem;
  } else if (PyODict_CheckExact(destination) ||
             reinterpret_cast<PyObject *>(Py_TYPE(destination)) == state_dict_type) {
    set = ordered_dict_set;
  }
}

namespace {

// Stores what is in one of the registries.
template <Slot slot>
int save_registry(ModuleObject *module, const Destination &destination, LazyPrefix *lazy_prefix) {
  PyObject *mapping;
  Owned keep;
  const int found = registry(module, slot, &mapping, &keep);
  if (found <= 0) {
    return found;
  }
  RegistryItems items;
  if (items.start(mapping) < 0) {
    return -1;
  }
  PyObject *name, *tensor;
  int more;
  while ((more = destination.signals.step() < 0 ? -1 : items.next(&name, &tensor)) > 0) {
    if (tensor == Py_None) {
      continue;
    }
    // The registry may change while a family or a destination runs Python code.
    const Owned held_name = borrow(name), held_tensor = borrow(tensor);
    const int left_out = slot == Slot::buffers ? is_non_persistent(module, name) : 0;
    if (left_out > 0) {
      continue;
    }
    PyObject *prefix = left_out < 0 ? nullptr : lazy_prefix->get();
    if (!prefix || save_entry(destination, prefix, name, tensor) < 0) {
      return -1;
    }
  }
  return more;
}

}  // namespace

int save_own(PyObject *module_obj, const Destination &destination, LazyPrefix lazy_prefix) {
  ModuleObject *module = as_module(module_obj);
  if (save_registry<Slot::parameters>(module, destination, &lazy_prefix) < 0 ||
      save_registry<Slot::buffers>(module, destination, &lazy_prefix) < 0) {
    return -1;
  }
  if (!class_info(Py_TYPE(module_obj)).overrides(Virtual::get_extra_state)) {
    return 0;
  }
  PyObject *prefix = lazy_prefix.get();
  const Owned key = prefix ? steal(extra_state_key(prefix)) : Owned();
  const Owned state =
      key ? steal(PyObject_CallMethodNoArgs(module_obj, names.get_extra_state)) : Owned();
  return state ? destination.store(key.ptr(), state.ptr()) : -1;
}

PyObject *module_save_to_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    static const ArgumentNames names_of = {
        "_save_to_state_dict", {"destination", "prefix", "keep_vars"}, 3};
    PyObject *values[kMaxArguments] = {};
    if (parse_arguments(names_of, args, count, keywords, values) < 0) {
      return nullptr;
    }
    const int keep_vars = PyObject_IsTrue(values[2]);
    PyObject *type = keep_vars < 0 ? nullptr : need_installed(installed.StateDict);
    if (!type) {
      return nullptr;
    }
    const Owned destination = borrow(values[0]), prefix = borrow(values[1]);
    if (!PyUnicode_Check(prefix.ptr())) {
      PyErr_Format(PyExc_TypeError, "_save_to_state_dict: prefix must be a str, got %.200s: %R",
                   Py_TYPE(prefix.ptr())->tp_name, prefix.ptr());
      return nullptr;
    }
    const Destination target(destination.ptr(), keep_vars != 0, type);
    const auto given = [](void *context) { return static_cast<PyObject *>(context); };
    return save_own(self_obj, target, {given, prefix.ptr()}) < 0 ? nullptr : Py_NewRef(Py_None);
  });
}

}  // namespace modtree
