// SPDX-License-Identifier: BSD-3-Clause
#include "module/copy.h"

#include <array>

#include "module/class_info.h"
#include "module/deepcopy.h"
#include "module/object_methods.h"
#include "python/call.h"
#include "python/installed.h"
#include "python/native_section.h"
#include "python/slot_guard.h"

namespace modtree {

namespace {

// Entries that __setstate__, torch's as ours, does not make up when a state lacks them.
bool must_be_in_state(Slot slot) {
  switch (slot) {
    case Slot::training:
    case Slot::parameters:
    case Slot::buffers:
    case Slot::modules:
    case Slot::backward_hooks:
    case Slot::forward_hooks:
      return true;
    default:
      return false;
  }
}

// The entries in the order in which __setstate__ makes them up, then those that it does not.
constexpr std::array<Slot, kSlotCount> kMakingOrder = {
    Slot::forward_pre_hooks,
    Slot::forward_pre_hooks_with_kwargs,
    Slot::forward_hooks_with_kwargs,
    Slot::forward_hooks_always_called,
    Slot::state_dict_hooks,
    Slot::state_dict_pre_hooks,
    Slot::load_state_dict_pre_hooks,
    Slot::load_state_dict_post_hooks,
    Slot::non_persistent_buffers_set,
    Slot::is_full_backward_hook,
    Slot::backward_pre_hooks,
    Slot::training,
    Slot::parameters,
    Slot::buffers,
    Slot::backward_hooks,
    Slot::forward_hooks,
    Slot::modules,
};

// True for what pickled_empty() makes, if unchanged.
bool is_pickled_empty(PyObject *value) {
  return reinterpret_cast<PyObject *>(Py_TYPE(value)) == installed.PickledTable &&
         PyDict_GET_SIZE(value) == 0;
}

bool is_empty_container(PyObject *value) {
  if (!value) {
    return true;
  }
  if (PyAnySet_CheckExact(value)) {
    return PySet_GET_SIZE(value) == 0;
  }
  const bool is_dict = PyDict_CheckExact(value) || PyODict_CheckExact(value);
  return (is_dict && PyDict_GET_SIZE(value) == 0) || is_pickled_empty(value);
}

int add_plain_attributes(ModuleObject *module, PyObject *state) {
  const auto attributes = py::reinterpret_borrow<py::object>(module->dict);
  if (attributes && PyDict_Update(state, attributes.ptr()) < 0) {
    return -1;
  }
  PyObject *compiled;
  if (dict_pop(state, names.compiled_call_impl, &compiled) < 0) {
    return -1;
  }
  Py_XDECREF(compiled);
  return 0;
}

// What __dict__ would show, without making the module exposed. New reference.
PyObject *full_state(ModuleObject *module) {
  auto state = py::reinterpret_steal<py::object>(PyDict_New());
  if (!state) {
    return nullptr;
  }
  if (!module->state.exposed && module->state.initialized) {
    for (int i = 0; i < kSlotCount; ++i) {
      const Slot slot = static_cast<Slot>(i);
      PyObject *value = require(module, slot);
      if (!value || PyDict_SetItem(state.ptr(), slot_name(slot), value) < 0) {
        return nullptr;
      }
    }
  }
  return add_plain_attributes(module, state.ptr()) < 0 ? nullptr : state.release().ptr();
}

// The placeholder for an empty container in a lean state: new reference, null on error.
PyObject *pickled_empty(Slot slot) {
  if (slot != Slot::backward_hooks && slot != Slot::forward_hooks) {
    return default_value(slot);
  }
  return call_installed(installed.PickledTable).release().ptr();
}

// True if an entry has only what __setstate__ would make up.
bool is_made_up(Slot slot, PyObject *value) {
  return slot == Slot::is_full_backward_hook ? !value || value == Py_None
                                             : is_empty_container(value);
}

// Everything in the instance dict but the internal attributes.
int add_attributes_of_exposed(ModuleObject *module, PyObject *state) {
  const auto attributes = py::reinterpret_steal<py::object>(PyDict_Copy(module->dict));
  for (int i = 0; attributes && i < kSlotCount; ++i) {
    PyObject *entry;
    if (dict_pop(attributes.ptr(), slot_name(static_cast<Slot>(i)), &entry) < 0) {
      return -1;
    }
    Py_XDECREF(entry);
  }
  PyObject *compiled;
  if (!attributes || dict_pop(attributes.ptr(), names.compiled_call_impl, &compiled) < 0) {
    return -1;
  }
  Py_XDECREF(compiled);
  return PyDict_Update(state, attributes.ptr());
}

// The state that is pickled when no Python code looks at it: without the empty tables that
// __setstate__ makes up. The same whatever was done with the module, so that its pickles have the
// same bytes: an entry that nobody has asked for is written as an empty one that was. Containers
// are those of the module where it has them, since others in the pickle may share them.
PyObject *lean_state(ModuleObject *module) {
  module->state.lacks_training = false;  // the receiver of the state holds the registries
  auto state = py::reinterpret_steal<py::object>(PyDict_New());
  if (!state) {
    return nullptr;
  }
  for (int i = 0; i < kSlotCount; ++i) {
    const Slot slot = static_cast<Slot>(i);
    PyObject *value = peek(module, slot);
    if (!value && PyErr_Occurred()) {
      return nullptr;
    }
    if ((!value && slot == Slot::training) ||
        (!must_be_in_state(slot) && is_made_up(slot, value))) {
      continue;  // the first was deleted by code that has run since it was there
    }
    const auto entry =
        py::reinterpret_steal<py::object>(value ? Py_NewRef(value) : pickled_empty(slot));
    if (!entry || PyDict_SetItem(state.ptr(), slot_name(slot), entry.ptr()) < 0) {
      return nullptr;
    }
  }
  const int added = module->state.exposed ? add_attributes_of_exposed(module, state.ptr())
                                          : add_plain_attributes(module, state.ptr());
  return added < 0 ? nullptr : state.release().ptr();
}

// The state of a module whose class has a `__dict__` of its own.
PyObject *state_of_shown_dict(PyObject *self_obj) {
  const auto shown = py::reinterpret_steal<py::object>(PyObject_GetAttr(self_obj, names.dict));
  auto state = shown ? call_method(shown, "copy") : py::object();
  if (!state) {
    return nullptr;
  }
  const auto compiled = call_method(state, "pop", py::handle(names.compiled_call_impl), py::none());
  return compiled ? state.release().ptr() : nullptr;
}

// Puts one entry of a state into the module, as an update of its __dict__ would.
int restore_entry(ModuleObject *module, PyObject *key, PyObject *value) {
  const SpecialName *special = PyUnicode_Check(key) ? find_special_name(key) : nullptr;
  if (special && special->slot >= 0 && !module->state.exposed) {
    const Slot slot = static_cast<Slot>(special->slot);
    // States used to spell an empty container None. The table that is only a placeholder for an
    // empty one is met where a state is used without being pickled.
    if (slot != Slot::training && (value == Py_None || is_pickled_empty(value))) {
      PyObject **cell = compact_cell(module->state, slot);
      if (cell) {
        release_later(exchange_cell<PyObject>(cell, nullptr));
      }
      return 0;
    }
    return store_slot(module, slot, value);
  }
  if (special && special->is_virtual) {
    store_flag(&module->state.instance_overrides, true);
  }
  const auto entry = py::reinterpret_steal<py::object>(is_pickled_empty(value) ? new_ordered_dict()
                                                                               : Py_NewRef(value));
  return entry ? store_attribute(module, key, entry.ptr()) : -1;
}

// A new module's container for a slot: new reference, null on error.
PyObject *fresh_value(Slot slot) {
  const auto fresh =
      py::reinterpret_steal<py::object>(module_base_type->tp_alloc(module_base_type, 0));
  return fresh && reset_state(as_module(fresh.ptr())) == 0
             ? Py_XNewRef(require(as_module(fresh.ptr()), slot))
             : nullptr;
}

// In exposed mode, the entries that torch makes up for a state without them, and those that a state
// spells None, need their containers; in compact mode an empty one is nothing. torch assigns what
// it makes up, which an override of __setattr__ (`assigns`) sees.
int fill_missing(ModuleObject *module, PyObject *state, bool assigns) {
  for (const Slot slot : kMakingOrder) {
    PyObject *name = slot_name(slot);
    const bool is_none = slot != Slot::training && slot != Slot::is_full_backward_hook &&
                         dict_get_str(state, name) == Py_None;
    // An override may have put another dict there.
    const auto dict = py::reinterpret_borrow<py::object>(instance_dict(module));
    if (!dict) {
      return -1;
    }
    const bool is_made_up = !must_be_in_state(slot) && !dict_get_str(dict.ptr(), name);
    if (PyErr_Occurred()) {
      return -1;
    }
    if (!is_made_up && !is_none) {
      continue;
    }
    const auto value = py::reinterpret_steal<py::object>(fresh_value(slot));
    if (!value || (is_made_up && assigns ? PyObject_SetAttr(as_object(module), name, value.ptr())
                                         : PyDict_SetItem(dict.ptr(), name, value.ptr())) < 0) {
      return -1;
    }
  }
  return 0;
}

// True if the state lacks one of the entries that it must have (`required`) or one of the others.
bool lacks_entry(PyObject *state, bool required) {
  for (int i = 0; i < kSlotCount; ++i) {
    const Slot slot = static_cast<Slot>(i);
    if (must_be_in_state(slot) == required && !dict_get_str(state, slot_name(slot))) {
      return true;
    }
  }
  return false;
}

// True for a state made by lean_state. Other states that lack entries, such as that of a copy of a
// module without them, have empty ones among the rest.
bool is_lean_state(PyObject *state) {
  bool lacks = false;
  for (int i = 0; i < kSlotCount; ++i) {
    const Slot slot = static_cast<Slot>(i);
    if (must_be_in_state(slot)) {
      continue;
    }
    PyObject *value = dict_get_str(state, slot_name(slot));
    if (value && is_empty_container(value)) {
      return false;
    }
    lacks = lacks || !value;
  }
  return lacks;
}

// __setstate__ of a module whose class has a `__dict__` of its own.
int set_shown_dict(PyObject *self_obj, PyObject *state) {
  const auto shown_dict = [&] {
    return py::reinterpret_steal<py::object>(PyObject_GetAttr(self_obj, names.dict));
  };
  const py::object updated = shown_dict();
  if (!updated || !call_method(updated, "update", py::handle(state))) {
    return -1;
  }
  for (const Slot slot : kMakingOrder) {
    if (must_be_in_state(slot)) {
      continue;
    }
    const py::object shown = shown_dict();
    const int is_there = shown ? PySequence_Contains(shown.ptr(), slot_name(slot)) : -1;
    if (is_there > 0) {
      continue;
    }
    const auto made =
        py::reinterpret_steal<py::object>(is_there < 0 ? nullptr : default_value(slot));
    if (!made || PyObject_SetAttr(self_obj, slot_name(slot), made.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

int set_state(ModuleObject *module, PyObject *state) {
  const bool assigns = class_info(Py_TYPE(module)).overrides(Virtual::setattr);
  const bool is_new = !module->state.initialized && !module->state.exposed;
  const bool lacks_required = is_new && lacks_entry(state, true);
  const bool is_lean = is_new && !lacks_required && is_lean_state(state);
  if (PyErr_Occurred()) {
    return -1;  // of a key of the state
  }
  if (is_new) {
    // Entries that are missing, for good or until an override of __setattr__ has seen them, can
    // only be expressed by a dict.
    const bool is_missing = lacks_required || (assigns && !is_lean && lacks_entry(state, false));
    if ((is_missing ? expose(module) : reset_state(module)) < 0) {
      return -1;
    }
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (dict_next_item(state, &position, &key, &value)) {
    const auto keep_key = py::reinterpret_borrow<py::object>(key);
    const auto keep_value = py::reinterpret_borrow<py::object>(value);
    if (restore_entry(module, key, value) < 0) {
      return -1;
    }
  }
  return module->state.exposed ? fill_missing(module, state, assigns && !is_lean) : 0;
}

// Code objects of copy.copy and copy.deepcopy, and two functions of copyreg, kept for good.
PyObject *copy_code = nullptr;
PyObject *deepcopy_code = nullptr;
PyObject *newobj = nullptr;
PyObject *reconstructor = nullptr;

PyObject *newobj_reduction(PyObject *self_obj, PyObject *state) {
  return Py_BuildValue("O(O)O", newobj, Py_TYPE(self_obj), state);
}

// The description of protocols 0 and 1: object.__new__ makes the object, not the class's.
PyObject *reconstructor_reduction(PyObject *self_obj, PyObject *state) {
  const int has_state = PyObject_IsTrue(state);
  if (has_state < 0) {
    return nullptr;
  }
  return Py_BuildValue(has_state ? "O(OOO)O" : "O(OOO)", reconstructor, Py_TYPE(self_obj),
                       &PyBaseObject_Type, Py_None, state);
}

// The code object of a function of a module, or None. Throws error_already_set.
PyObject *code_of(const char *module, const char *name) {
  const py::object function = import_attribute(module, name);
  if (!function) {
    throw py::error_already_set();
  }
  return py::getattr(function, "__code__", py::none()).release().ptr();
}

// True if this Python code is running now, so that it called us without another frame in between.
bool is_running(PyObject *code) {
  PyFrameObject *frame = PyEval_GetFrame();
  if (!frame) {
    return false;
  }
  const auto running =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject *>(PyFrame_GetCode(frame)));
  return running.ptr() == code;
}

// True if lean_state() is to pickle the module.
bool pickles_lean(ModuleObject *module) {
  if (!module->state.exposed) {
    return copies_natively(module);
  }
  for (int i = 0; i < kSlotCount; ++i) {
    if (!peek(module, static_cast<Slot>(i))) {
      return false;  // what is missing stays missing
    }
  }
  return inherits_copying(module) && !is_running(deepcopy_code);
}

}  // namespace

PyObject *module_getstate(PyObject *self_obj, PyObject *) {
  return slot_guard<PyObject *>(nullptr, [&] {
    return class_info(Py_TYPE(self_obj)).inherits_dict() ? full_state(as_module(self_obj))
                                                         : state_of_shown_dict(self_obj);
  });
}

PyObject *module_setstate(PyObject *self_obj, PyObject *state) {
  // A copy: storing an entry may run code that changes the caller's dict. Another mapping, or
  // pairs, go as well.
  const auto entries = py::reinterpret_steal<py::object>(
      PyDict_CheckExact(state)
          ? PyDict_Copy(state)
          : PyObject_CallOneArg(reinterpret_cast<PyObject *>(&PyDict_Type), state));
  if (!entries || slot_guard(-1, [&] {
                    return class_info(Py_TYPE(self_obj)).inherits_dict()
                               ? set_state(as_module(self_obj), entries.ptr())
                               : set_shown_dict(self_obj, entries.ptr());
                  }) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *module_reduce_ex(PyObject *self_obj, PyObject *protocol) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    const long number = PyLong_AsLong(protocol);
    if (number == -1 && PyErr_Occurred()) {
      return nullptr;
    }
    ModuleObject *self = as_module(self_obj);
    const bool is_old = number < 2;
    // copy.copy shares the registries with the original, so it needs all of them.
    const bool is_lean = pickles_lean(self);
    if (PyErr_Occurred()) {
      return nullptr;
    }
    if (is_lean && !is_running(copy_code)) {
      const auto state = py::reinterpret_steal<py::object>(lean_state(self));
      const bool reconstructs = is_old && object_new_takes_modules();
      return !state         ? nullptr
             : reconstructs ? reconstructor_reduction(self_obj, state.ptr())
                            : newobj_reduction(self_obj, state.ptr());
    }
    if (is_old && object_new_takes_modules() &&
        !class_info(Py_TYPE(self_obj)).overrides(Virtual::reduce)) {
      const auto state =
          py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(self_obj, names.getstate));
      return state ? reconstructor_reduction(self_obj, state.ptr()) : nullptr;
    }
    // CPython's own description in protocols 0 and 1 calls the native base with the module.
    auto *object_class = reinterpret_cast<PyObject *>(&PyBaseObject_Type);
    return PyObject_CallMethod(object_class, "__reduce_ex__", "Ol", self_obj, is_old ? 2 : number);
  });
}

PyObject *module_deepcopy(PyObject *self_obj, PyObject *memo) {
  return slot_guard<PyObject *>(nullptr, [&] { return deepcopy_tree(self_obj, memo); });
}

PyObject *native_deepcopy(PyObject *self_obj) {
  static PyMethodDef method = {"__deepcopy__", entry<module_deepcopy>, METH_O, nullptr};
  if (!is_running(deepcopy_code) || !copies_natively(as_module(self_obj)) ||
      declines_deepcopy(self_obj)) {
    return nullptr;
  }
  return PyCFunction_New(&method, self_obj);
}

void init_copying() {
  init_deepcopy();
  copy_code = code_of("copy", "copy");
  deepcopy_code = code_of("copy", "deepcopy");
  newobj = import_attribute("copyreg", "__newobj__").release().ptr();
  reconstructor = import_attribute("copyreg", "_reconstructor").release().ptr();
  if (!newobj || !reconstructor) {
    throw py::error_already_set();
  }
}

}  // namespace modtree
