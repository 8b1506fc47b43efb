// SPDX-License-Identifier: BSD-3-Clause
// The module object, its two storage modes, and how all other code reads its internal attributes.
#pragma once

#include <pybind11/pytypes.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "module/attributes/registry_items.h"
#include "python/compat.h"
#include "python/dict_lookup.h"
#include "python/interned.h"
#include "python/shared_cell.h"

namespace modtree {

namespace py = pybind11;

// The 17 internal attributes, in the order in which `__dict__` shows them.
enum class Slot : std::uint8_t {
  training,
  parameters,
  buffers,
  non_persistent_buffers_set,
  backward_pre_hooks,
  backward_hooks,
  is_full_backward_hook,
  forward_hooks,
  forward_hooks_with_kwargs,
  forward_hooks_always_called,
  forward_pre_hooks,
  forward_pre_hooks_with_kwargs,
  state_dict_hooks,
  state_dict_pre_hooks,
  load_state_dict_pre_hooks,
  load_state_dict_post_hooks,
  modules,
};
constexpr int kSlotCount = 17;

// The hook tables and _is_full_backward_hook (null: None); allocated when the first of them is
// made.
struct HookBlock {
  PyObject *values[12];
};

// State in compact mode; in exposed mode (`exposed`) every pointer here is null and the instance
// dict holds all 17 entries.
// What walks ask of every module comes first.
// - training: any object; null until Module.__init__ has run.
// - parameters, buffers, modules: a plain table (registry_items.h), null while empty and never
// looked at.
// - non_persistent: a set, null like them.
// - hooks: null until a hook table is made; the tables are plain.
// - initialized: Module.__init__ (or __setstate__) has run.
// - instance_overrides: the instance dict may hold a name that is a virtual method of Module, such
// as `forward`.
// - lacks_training: no registry has an entry `training`, and nobody else held one when that was
// found out. Only ever true by note_lacks_training(); handing a registry out, or adding to it,
// makes it false.
struct ModuleState {
  bool initialized;
  bool exposed;
  bool instance_overrides;
  bool lacks_training;
#ifdef Py_GIL_DISABLED
  std::uint8_t foreign_calls;  // of threads that did not make the module (call.cpp)
#endif
  PyObject *training;
  PyObject *modules;
  PyObject *parameters;
  PyObject *buffers;
  PyObject *non_persistent;
  HookBlock *hooks;
};

// True if Module.__init__ has run and the members hold the entries. Compared as one word.
inline bool is_compact(const ModuleState &state) {
  static_assert(offsetof(ModuleState, initialized) == 0 && offsetof(ModuleState, exposed) == 1);
  constexpr bool kCompact[] = {true, false};
  return std::memcmp(&state, kCompact, sizeof kCompact) == 0;
}

struct ModuleObject {
  PyObject_HEAD ModuleState state;
  PyObject *dict;
  PyObject *weakrefs;
  vectorcallfunc vectorcall;  // call.h; null: the interpreter takes tp_call
};

// What walks over modules read of each.
constexpr std::size_t kModuleHead =
    offsetof(ModuleObject, state) + offsetof(ModuleState, parameters);

extern PyTypeObject *module_base_type;

inline bool is_module(PyObject *value) { return PyObject_TypeCheck(value, module_base_type); }
// isinstance(value, Module): also of a value whose `__class__` says so, as of a mock with a spec or
// a proxy. It may run user code, and what it is true of need not be a ModuleObject. -1 on error.
inline int passes_for_module(PyObject *value) {
  return is_module(value)
             ? 1
             : PyObject_IsInstance(value, reinterpret_cast<PyObject *>(module_base_type));
}
inline ModuleObject *as_module(PyObject *value) { return reinterpret_cast<ModuleObject *>(value); }
inline PyObject *as_object(ModuleObject *module) { return reinterpret_cast<PyObject *>(module); }

PyObject *slot_name(Slot slot);  // borrowed, interned

// What the attribute protocol must know of a name, beyond plain attributes.
struct SpecialName {
  PyObject *name = nullptr;
  int slot = -1;            // a Slot, or -1
  bool is_virtual = false;  // a method of Module that an instance attribute may override
};
// Null for an ordinary name. `name` is any str.
const SpecialName *find_special_name(PyObject *name);
// Fills the table; called once, after intern_names().
void init_special_names();

// --- reading

inline PyObject **compact_cell(ModuleState &state, Slot slot) {
  switch (slot) {
    case Slot::training:
      return &state.training;
    case Slot::parameters:
      return &state.parameters;
    case Slot::buffers:
      return &state.buffers;
    case Slot::modules:
      return &state.modules;
    case Slot::non_persistent_buffers_set:
      return &state.non_persistent;
    default:
      // backward_pre_hooks .. load_state_dict_post_hooks
      return state.hooks ? &state.hooks->values[static_cast<int>(slot) -
                                                static_cast<int>(Slot::backward_pre_hooks)]
                         : nullptr;
  }
}

// The entry of a module in exposed mode: borrowed, or null when it is missing; with an error set
// where a key of the dict raised when it was compared (dict_get_str), also in all below.
PyObject *peek_exposed(ModuleObject *module, Slot slot);

// Borrowed, until the next call of this or of anything else that may run user code; null without an
// error when the entry is missing, or (compact) empty and not made yet.
inline PyObject *peek(ModuleObject *module, Slot slot) {
  if (module->state.exposed) {
    return peek_exposed(module, slot);
  }
  PyObject **cell = compact_cell(module->state, slot);
  return cell ? *cell : nullptr;
}

// True if the module has this entry: not before Module.__init__, nor after the entry was deleted.
inline bool has_slot(ModuleObject *module, Slot slot) {
  if (module->state.exposed) {
    return peek_exposed(module, slot) != nullptr;
  }
  return module->state.initialized;
}

// Sets the AttributeError that torch raises when an entry is missing.
void raise_missing_slot(ModuleObject *module, Slot slot);

// The rest of registry(): for modules in exposed mode, and for those that lack the entry.
int registry_of_any(ModuleObject *module, Slot slot, PyObject **mapping, py::object *keep);

// True if the class of a module in exposed mode has a property under the name of a registry, which
// hides what the instance dict holds.
bool class_hides_registries(ModuleObject *module);

// What the class of a module that lacks an entry gives in its place (`__getattr__`, a class
// attribute): 1 and the value, which *keep owns; -1 with AttributeError when it has nothing. Runs
// user code.
int missing_entry(ModuleObject *module, Slot slot, PyObject **value, py::object *keep);

// `module._modules` and its like for walks: 1 and the mapping; 0 (and null) when there is nothing
// in it; -1 with AttributeError when the entry is missing. The mapping is borrowed from the module;
// one that its class gave for a missing entry is owned by *keep.
inline int registry(ModuleObject *module, Slot slot, PyObject **mapping, py::object *keep) {
  if (module->state.exposed || !module->state.initialized) {
    return registry_of_any(module, slot, mapping, keep);
  }
  PyObject **cell = compact_cell(module->state, slot);
  *mapping = cell ? *cell : nullptr;
  return *mapping != nullptr;
}

// True if the entry may hold anything. Runs no user code: a missing entry, which the class may
// supply, counts as one that does.
inline bool may_have_entries(ModuleObject *module, Slot slot) {
  PyObject *mapping = peek(module, slot);
  if (!mapping) {
    return PyErr_Occurred() || !has_slot(module, slot);
  }
  return !is_plain_table(mapping) || PyDict_GET_SIZE(mapping) != 0;
}

// A new value such as Module.__init__ gives this entry; null on error.
PyObject *default_value(Slot slot);

// Borrowed; makes the empty container in compact mode. Null with AttributeError when the entry is
// missing. For callers that give it to Python code or add to it.
PyObject *require(ModuleObject *module, Slot slot);

// True if certainly no registry of a module in compact mode has an entry `training`. Remembered if
// only the module refers to the registries. Runs no user code.
bool note_lacks_training(ModuleState &state);

// 1 if `name` is in the mapping (null: empty), -1 with an error set on failure.
inline int mapping_contains(PyObject *mapping, PyObject *name) {
  if (!mapping) {
    return 0;
  }
  if (is_plain_table(mapping) && PyUnicode_Check(name)) {
    return dict_contains_str(mapping, name);
  }
  // Comparing names may run code that puts another mapping in its place.
  const auto keep = py::reinterpret_borrow<py::object>(mapping);
  return PySequence_Contains(mapping, name);
}

// 1 if `name` is in the registry in `__dict__`, 0 also if the registry is missing.
inline int registry_contains(ModuleObject *module, Slot slot, PyObject *name) {
  PyObject *mapping = peek(module, slot);
  return !mapping && module->state.exposed && PyErr_Occurred() ? -1
                                                               : mapping_contains(mapping, name);
}
// True if a loop over the mapping of hooks or children (null: none) may give anything. Only the
// loop itself tells what a table that is not plain gives.
inline bool may_give_entries(PyObject *mapping) {
  return mapping && (!is_plain_table(mapping) || PyDict_GET_SIZE(mapping) != 0);
}

// True if one of the three registries is not plain. Then torch's Python steps are followed instead
// of native shortcuts around the table.
bool has_odd_exposed_table(ModuleObject *module);
inline bool has_odd_table(ModuleObject *module) {
  return module->state.exposed && has_odd_exposed_table(module);
}

// --- writing

// Replaces an entry whatever it is; a value that compact mode cannot hold makes the module exposed.
// -1 on error.
int store_slot(ModuleObject *module, Slot slot, PyObject *value);

// Deletes an entry (the module becomes exposed). 1 deleted, 0 was missing, -1 on error.
int delete_slot(ModuleObject *module, Slot slot);

// Moves the 17 entries into the instance dict, in front of the plain attributes. -1 on error;
// nothing happens when exposed already.
int expose(ModuleObject *module);

// Lets the modules of this very class be exposed from the start, for a library whose own C code
// reads their dicts (dropin/_compile.py). 1 if they were not before, -1 on error.
int start_exposed(PyTypeObject *type);
bool starts_exposed(PyTypeObject *type);

// The state of a fresh Module.__init__: all registrations are lost, plain attributes stay. -1 on
// error.
int reset_state(ModuleObject *module);

// Drops hook tables of a module in compact mode that are all empty and known to nobody else, as
// those of an unpickled module are: then calls take the way of a module that never had any. Runs no
// user code.
void forget_empty_hooks(ModuleState &state);

// Puts another state into a module, and returns the one before.
inline ModuleState exchange_state(ModuleObject *module, const ModuleState &fresh) {
  ModuleState &state = module->state;
  const ModuleState old = state;
#ifdef Py_GIL_DISABLED
  // The flags first: a thread that no longer finds hooks and then reads the flags sees that the
  // dict has them.
  store_flag(&state.exposed, fresh.exposed);
  store_flag(&state.instance_overrides, fresh.instance_overrides);
  store_flag(&state.initialized, fresh.initialized);
  state.lacks_training = fresh.lacks_training;
  exchange_cell(&state.training, fresh.training);
  exchange_cell(&state.modules, fresh.modules);
  exchange_cell(&state.parameters, fresh.parameters);
  exchange_cell(&state.buffers, fresh.buffers);
  exchange_cell(&state.non_persistent, fresh.non_persistent);
  exchange_cell(&state.hooks, fresh.hooks);
#else
  state = fresh;
#endif
  return old;
}

// Lets go of what the state of a module held that nothing leads to any more.
void release_state(const ModuleState &old);
// The same of one that has been replaced in a module that others may be reading.
void release_state_later(const ModuleState &old);

// The instance dict for plain attributes (compact) or everything (exposed), made when missing. In
// compact mode its keys are exact strs. Borrowed; null on error.
PyObject *instance_dict(ModuleObject *module);

// What the instance dict has under the name: a new reference, or null; with an error set where a
// key raised when it was compared. In compact mode that is none of the 17 entries.
//
// Comparing a name of a class derived from str may run code that looks at the `__dict__` of the
// module. In compact mode that moves the entries to another dict, where the search goes on.
inline PyObject *instance_attribute(ModuleObject *module, PyObject *name) {
  for (int tries = 0;; ++tries) {
    PyObject *dict = module->dict;
    PyObject *value = dict ? dict_find_str(dict, name) : nullptr;
    // Not for ever: a key may do so each time.
    if (value || dict == module->dict || tries == 2) {
      return Py_XNewRef(value);
    }
  }
}
// 1 if it has the name, -1 with an error set.
int has_instance_attribute(ModuleObject *module, PyObject *name);
// Store and remove a plain attribute. A key that is not an exact str exposes the module first,
// since hashing and comparing it may run code that would do so meanwhile. -1 on error.
int store_attribute(ModuleObject *module, PyObject *key, PyObject *value);
// 1 removed, 0 when there is none, -1 on error.
int remove_attribute(ModuleObject *module, PyObject *key);

// A new empty OrderedDict; null on error.
PyObject *new_ordered_dict();

}  // namespace modtree
