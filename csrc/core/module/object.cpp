// SPDX-License-Identifier: BSD-3-Clause
#include "module/object.h"

#include <array>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "module/class_info.h"
#include "module/torch_facts.h"
#include "python/call.h"
#include "python/once.h"

namespace modtree {

PyTypeObject *module_base_type = nullptr;

namespace {

PyObject *ordered_dict_type = nullptr;

// Interned strings never move, so a name is found by its address.
constexpr std::size_t kSpecialTableSize = 256;
std::array<SpecialName, kSpecialTableSize> special_table;
PyObject *special_by_text =
    nullptr;  // dict: name -> index into special_table, for strings that are not interned

std::size_t special_index(PyObject *name) {
  const auto bits = reinterpret_cast<std::uintptr_t>(name);
  return ((bits >> 4) ^ (bits >> 12)) & (kSpecialTableSize - 1);
}

void add_special_name(PyObject *name, int slot, bool is_virtual) {
  std::size_t index = special_index(name);
  while (special_table[index].name) {
    index = (index + 1) & (kSpecialTableSize - 1);
  }
  special_table[index] = SpecialName{name, slot, is_virtual};
  const auto position = py::reinterpret_steal<py::object>(PyLong_FromSize_t(index));
  if (!position || PyDict_SetItem(special_by_text, name, position.ptr()) < 0) {
    throw py::error_already_set();
  }
}

bool is_set_like(PyObject *value) { return PyAnySet_Check(value) && !PyFrozenSet_Check(value); }

// True if compact mode can hold this value in this slot.
bool fits_compact(Slot slot, PyObject *value) {
  switch (slot) {
    case Slot::training:
    case Slot::is_full_backward_hook:
      return true;
    case Slot::non_persistent_buffers_set:
      return is_set_like(value);
    default:
      return is_plain_table(value);
  }
}

PyObject **writable_cell(ModuleObject *module, Slot slot) {
  ModuleState &state = module->state;
  if (PyObject **cell = compact_cell(state, slot)) {
    return cell;
  }
  auto *hooks = static_cast<HookBlock *>(PyMem_Calloc(1, sizeof(HookBlock)));
  if (!hooks) {
    PyErr_NoMemory();
    return nullptr;
  }
  exchange_cell(&state.hooks, hooks);
  return compact_cell(state, slot);
}

// Makes the containers that a compact module lacks: all are there afterwards, or it is exposed. -1
// on error.
int require_all(ModuleObject *module) {
  // Making one may run the collector, and with it code that registers something, drops what was
  // made, or exposes the module.
  for (bool complete = false; !complete;) {
    complete = true;
    for (int i = 0; i < kSlotCount && !module->state.exposed; ++i) {
      const Slot slot = static_cast<Slot>(i);
      if (!peek(module, slot)) {
        complete = false;
        if (!require(module, slot) && !module->state.exposed) {
          return -1;
        }
      }
    }
  }
  if (module->state.exposed) {
    PyErr_Clear();  // of an entry that the same code has deleted
  }
  return 0;
}

}  // namespace

PyObject *slot_name(Slot slot) {
  switch (slot) {
    case Slot::training:
      return names.training;
    case Slot::parameters:
      return names.parameters_;
    case Slot::buffers:
      return names.buffers_;
    case Slot::non_persistent_buffers_set:
      return names.non_persistent_buffers_set;
    case Slot::backward_pre_hooks:
      return names.backward_pre_hooks;
    case Slot::backward_hooks:
      return names.backward_hooks;
    case Slot::is_full_backward_hook:
      return names.is_full_backward_hook;
    case Slot::forward_hooks:
      return names.forward_hooks;
    case Slot::forward_hooks_with_kwargs:
      return names.forward_hooks_with_kwargs;
    case Slot::forward_hooks_always_called:
      return names.forward_hooks_always_called;
    case Slot::forward_pre_hooks:
      return names.forward_pre_hooks;
    case Slot::forward_pre_hooks_with_kwargs:
      return names.forward_pre_hooks_with_kwargs;
    case Slot::state_dict_hooks:
      return names.state_dict_hooks;
    case Slot::state_dict_pre_hooks:
      return names.state_dict_pre_hooks;
    case Slot::load_state_dict_pre_hooks:
      return names.load_state_dict_pre_hooks;
    case Slot::load_state_dict_post_hooks:
      return names.load_state_dict_post_hooks;
    case Slot::modules:
      return names.modules_;
  }
  return nullptr;
}

namespace {

// True if an object has anything at an offset that its type may define.
bool has_at(PyObject *object, Py_ssize_t offset) {
  return offset <= 0 || *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(object) + offset);
}

// True for an empty OrderedDict without attributes that only the module refers to.
bool is_forgettable(PyObject *table) {
  return PyODict_CheckExact(table) && PyDict_GET_SIZE(table) == 0 && is_sole_reference(table) &&
         !has_at(table, Py_TYPE(table)->tp_weaklistoffset) &&
         !has_at(table, Py_TYPE(table)->tp_dictoffset);
}

}  // namespace

void forget_empty_hooks(ModuleState &state) {
  for (PyObject *value : state.hooks->values) {
    if (value && value != Py_None && !is_forgettable(value)) {
      return;
    }
  }
  ModuleState old{};
  old.hooks = exchange_cell<HookBlock>(&state.hooks, nullptr);
  release_state_later(old);
}

// A module in exposed mode has ten of them.
static PyObject *new_hook_table() {
  PyObject *table = new_ordered_dict();
  if (table && PyODict_CheckExact(table)) {
    untrack_empty_dict(table);
  }
  return table;
}

PyObject *default_value(Slot slot) {
  switch (slot) {
    case Slot::training:
      return Py_NewRef(Py_True);
    case Slot::is_full_backward_hook:
      return Py_NewRef(Py_None);
    case Slot::non_persistent_buffers_set:
      return PySet_New(nullptr);
    case Slot::parameters:
    case Slot::buffers:
    case Slot::modules:
      return torch_facts.ordered_registries ? new_ordered_dict() : PyDict_New();
    default:
      return new_hook_table();
  }
}

void init_special_names() {
  ordered_dict_type = import_attribute("collections", "OrderedDict").release().ptr();
  special_by_text = PyDict_New();
  if (!ordered_dict_type || !special_by_text) {
    throw py::error_already_set();
  }
  for (int slot = 0; slot < kSlotCount; ++slot) {
    add_special_name(slot_name(static_cast<Slot>(slot)), slot, false);
  }
  for (int i = 0; i < kVirtualCount; ++i) {
    PyObject *name = virtual_name(static_cast<Virtual>(i));
    if (!find_special_name(name)) {
      add_special_name(name, -1, true);
    }
  }
}

const SpecialName *find_special_name(PyObject *name) {
  if (PyUnicode_CHECK_INTERNED(name)) {
    for (std::size_t index = special_index(name); special_table[index].name;
         index = (index + 1) & (kSpecialTableSize - 1)) {
      if (special_table[index].name == name) {
        return &special_table[index];
      }
    }
    return nullptr;
  }
  // By its text: a class derived from str is not asked.
  const auto text = py::reinterpret_steal<py::object>(
      PyUnicode_CheckExact(name) ? Py_NewRef(name) : PyUnicode_FromObject(name));
  PyObject *position = text ? dict_get_str(special_by_text, text.ptr()) : nullptr;
  return position ? &special_table[PyLong_AsSize_t(position)] : nullptr;
}

void raise_missing_slot(ModuleObject *module, Slot slot) {
  if (PyErr_Occurred()) {
    return;  // looking for it raised
  }
  PyErr_Format(PyExc_AttributeError,
               "'%.100s' object has no attribute '%U'; was super().__init__() called?",
               type_short_name(Py_TYPE(module)), slot_name(slot));
}

PyObject *peek_exposed(ModuleObject *module, Slot slot) {
  return dict_get_str(module->dict, slot_name(slot));
}

namespace {

// True if the class has a property under the name of a registry, as proxies for modules have. It
// hides what the instance dict holds.
bool class_hides(ModuleObject *module, Slot slot) {
  const ClassInfo info = class_info(Py_TYPE(module));
  if (!info.overrides_any<Virtual::parameters_, Virtual::buffers_, Virtual::modules_>()) {
    return false;
  }
  const py::object found = type_lookup(Py_TYPE(module), slot_name(slot));
  return found && Py_TYPE(found.ptr())->tp_descr_set;
}

int registry_of_class(ModuleObject *module, Slot slot, PyObject **value, py::object *keep) {
  *keep = py::reinterpret_steal<py::object>(PyObject_GetAttr(as_object(module), slot_name(slot)));
  *value = keep->ptr();
  return *value ? 1 : -1;
}

}  // namespace

bool class_hides_registries(ModuleObject *module) {
  return class_hides(module, Slot::parameters) || class_hides(module, Slot::buffers) ||
         class_hides(module, Slot::modules);
}

int registry_of_any(ModuleObject *module, Slot slot, PyObject **mapping, py::object *keep) {
  if (PyErr_Occurred()) {
    return -1;  // what was asked before raised
  }
  if (module->state.exposed && class_hides(module, slot)) {
    return registry_of_class(module, slot, mapping, keep);
  }
  *mapping = peek(module, slot);
  if (*mapping) {
    return 1;
  }
  return has_slot(module, slot) ? 0 : missing_entry(module, slot, mapping, keep);
}

int missing_entry(ModuleObject *module, Slot slot, PyObject **value, py::object *keep) {
  if (PyErr_Occurred()) {
    return -1;
  }
  if (!overrides(module, Virtual::getattr) && !type_lookup(Py_TYPE(module), slot_name(slot))) {
    raise_missing_slot(module, slot);
    return -1;
  }
  // A module that represents another one has its entries from there.
  return registry_of_class(module, slot, value, keep);
}

namespace {

bool is_registry(Slot slot) {
  return slot == Slot::parameters || slot == Slot::buffers || slot == Slot::modules;
}

bool surely_lacks(PyObject *mapping, PyObject *name) {
  if (!PyDict_CheckExact(mapping)) {
    return false;
  }
  if (dict_lacks_str(mapping, name)) {
    return true;
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (dict_next(mapping, &position, &key, &value)) {
    if (!PyUnicode_CheckExact(key) || PyUnicode_Compare(key, name) == 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool note_lacks_training(ModuleState &state) {
  bool is_sole = true;
  for (PyObject *mapping : {state.modules, state.parameters, state.buffers}) {
    if (mapping && !surely_lacks(mapping, names.training)) {
      return false;
    }
    is_sole = is_sole && (!mapping || is_sole_reference(mapping));
  }
  state.lacks_training = is_sole;
  return true;
}

PyObject *require(ModuleObject *module, Slot slot) {
  if (is_registry(slot)) {
    module->state.lacks_training = false;
  }
  if (PyObject *value = peek(module, slot)) {
    return value;
  }
  if (!has_slot(module, slot)) {
    raise_missing_slot(module, slot);
    return nullptr;
  }
  // Making the container may run the collector, and with it code that changes the module's mode or
  // makes the container itself: look for the place afterwards.
  auto value = py::reinterpret_steal<py::object>(default_value(slot));
  if (!value) {
    return nullptr;
  }
  if (PyObject *made = peek(module, slot)) {
    return made;
  }
  return store_slot(module, slot, value.ptr()) < 0 ? nullptr : peek(module, slot);
}

int store_slot(ModuleObject *module, Slot slot, PyObject *value) {
  if (is_registry(slot)) {
    module->state.lacks_training = false;
  }
  if (!module->state.exposed && module->state.initialized && fits_compact(slot, value)) {
    PyObject **cell = writable_cell(module, slot);
    if (!cell) {
      return -1;
    }
    release_later(exchange_cell(cell, Py_NewRef(value)));
    return 0;
  }
  if (expose(module) < 0) {
    return -1;
  }
  const auto dict = py::reinterpret_borrow<py::object>(module->dict);
  return PyDict_SetItem(dict.ptr(), slot_name(slot), value);
}

int delete_slot(ModuleObject *module, Slot slot) {
  if (!has_slot(module, slot)) {
    return PyErr_Occurred() ? -1 : 0;
  }
  if (expose(module) < 0) {
    return -1;
  }
  PyObject *old;
  const auto dict = py::reinterpret_borrow<py::object>(module->dict);
  const int found = dict_pop(dict.ptr(), slot_name(slot), &old);
  Py_XDECREF(old);
  return found;
}

// The classes whose modules start exposed, with weak references to them: one that has died may have
// left its address to another class.
static std::unordered_map<PyTypeObject *, PyObject *> exposed_classes;

bool starts_exposed(PyTypeObject *type) {
  if (exposed_classes.empty()) {
    return false;
  }
  const auto found = exposed_classes.find(type);
  return found != exposed_classes.end() &&
         is_referent(found->second, reinterpret_cast<PyObject *>(type));
}

int start_exposed(PyTypeObject *type) {
  if (starts_exposed(type)) {
    return 0;
  }
  PyObject *reference = PyWeakref_NewRef(reinterpret_cast<PyObject *>(type), nullptr);
  if (!reference) {
    return -1;
  }
  Py_XDECREF(std::exchange(exposed_classes[type], reference));
  return 1;
}

int expose(ModuleObject *module) {
  if (module->state.exposed) {
    return 0;
  }
  const auto dict = py::reinterpret_steal<py::object>(PyDict_New());
  if (!dict) {
    return -1;
  }
  if (module->state.initialized) {
    if (require_all(module) < 0) {
      return -1;
    }
    if (module->state.exposed) {
      return 0;
    }
    for (int i = 0; i < kSlotCount; ++i) {
      const Slot slot = static_cast<Slot>(i);
      if (PyDict_SetItem(dict.ptr(), slot_name(slot), peek(module, slot)) < 0) {
        return -1;
      }
    }
  }
  // All keys are exact strs: nothing has run user code since the containers were there.
  if (module->dict && PyDict_Update(dict.ptr(), module->dict) < 0) {
    return -1;
  }
  ModuleState exposed{};
  exposed.initialized = module->state.initialized;
  exposed.exposed = true;
  exposed.instance_overrides = module->state.instance_overrides;
  const ModuleState old = exchange_state(module, exposed);
  PyObject *old_dict = exchange_cell(&module->dict, Py_NewRef(dict.ptr()));
  release_state_later(old);
  release_later(old_dict);
  return 0;
}

int reset_state(ModuleObject *module) {
  if (starts_exposed(Py_TYPE(module)) && expose(module) < 0) {
    return -1;
  }
  if (!module->state.exposed) {
    ModuleState fresh{};
    fresh.training = Py_NewRef(Py_True);
    fresh.initialized = true;
    fresh.instance_overrides = module->state.instance_overrides;
    release_state_later(exchange_state(module, fresh));
    return 0;
  }
  for (int i = 0; i < kSlotCount; ++i) {
    const Slot slot = static_cast<Slot>(i);
    const auto entry = py::reinterpret_steal<py::object>(default_value(slot));
    const auto dict = py::reinterpret_borrow<py::object>(module->dict);
    if (!entry || PyDict_SetItem(dict.ptr(), slot_name(slot), entry.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

namespace {

template <class Release, class Free>
void release_all(const ModuleState &old, Release release, Free free) {
  release(old.training);
  release(old.parameters);
  release(old.buffers);
  release(old.modules);
  release(old.non_persistent);
  if (old.hooks) {
    for (PyObject *value : old.hooks->values) {
      release(value);
    }
    free(old.hooks);
  }
}

void release_now(PyObject *value) { Py_XDECREF(value); }

}  // namespace

void release_state(const ModuleState &old) { release_all(old, release_now, PyMem_Free); }
void release_state_later(const ModuleState &old) { release_all(old, release_later, free_later); }

PyObject *instance_dict(ModuleObject *module) { return fill_once(&module->dict, PyDict_New); }

PyObject *new_ordered_dict() { return PyObject_CallNoArgs(ordered_dict_type); }

bool has_odd_exposed_table(ModuleObject *module) {
  for (const Slot slot : {Slot::parameters, Slot::buffers, Slot::modules}) {
    PyObject *table = peek_exposed(module, slot);
    if (table ? !is_plain_table(table) : PyErr_Occurred() != nullptr) {
      return true;
    }
  }
  return false;
}

int has_instance_attribute(ModuleObject *module, PyObject *name) {
  const auto value = py::reinterpret_steal<py::object>(instance_attribute(module, name));
  return value ? 1 : PyErr_Occurred() ? -1 : 0;
}

int store_attribute(ModuleObject *module, PyObject *key, PyObject *value) {
  if (!PyUnicode_CheckExact(key) && expose(module) < 0) {
    return -1;
  }
  const auto dict = py::reinterpret_borrow<py::object>(instance_dict(module));
  return dict ? PyDict_SetItem(dict.ptr(), key, value) : -1;
}

int remove_attribute(ModuleObject *module, PyObject *key) {
  if (!PyUnicode_CheckExact(key) && expose(module) < 0) {
    return -1;
  }
  PyObject *old = nullptr;
  const auto dict = py::reinterpret_borrow<py::object>(module->dict);
  const int found = dict ? dict_pop(dict.ptr(), key, &old) : 0;
  Py_XDECREF(old);
  return found;
}

}  // namespace modtree
