// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/reading.h"

#include "module/adoption.h"
#include "module/attributes/name_facts.h"
#include "module/attributes/plain_attributes.h"
#include "module/bound_method.h"
#include "module/class_info.h"
#include "module/copy.h"
#include "module/type.h"
#include "module/uses.h"
#include "python/native_section.h"

namespace modtree {

namespace {

bool has_native_getattro(PyTypeObject *type) { return type->tp_getattro == module_tp_getattro; }

// How far a read goes: `__getattribute__` of an adopted class leaves the registries to
// `__getattr__`, as `object.__getattribute__` does.
enum class Reach { everything, no_registries };

bool reaches_registries(PyTypeObject *type, Reach reach) {
  return reach == Reach::everything && has_native_getattro(type);
}

// New reference from a mapping that has to be asked: it may give something else than it holds, or
// do something first, such as fetching a parameter that was moved away. 1 found, 0 not, -1 on
// error.
int find_in_mapping(PyObject *mapping, PyObject *name, PyObject **value) {
  const auto keep = py::reinterpret_borrow<py::object>(mapping);
  const int found = PyErr_Occurred() ? -1 : PySequence_Contains(mapping, name);
  if (found <= 0) {
    return found;
  }
  *value = PyObject_GetItem(mapping, name);
  return *value ? 1 : -1;
}

// The same for a registry.
template <Slot slot>
int find_in_registry(ModuleObject *module, PyObject *name, PyObject **value) {
  PyObject *mapping = peek(module, slot);
  if (!mapping) {
    return 0;
  }
  if (!is_plain_table(mapping)) {
    return find_in_mapping(mapping, name, value);
  }
  *value = Py_XNewRef(dict_find_str(mapping, name));
  return *value != nullptr;
}

// New reference from parameters, buffers or modules, in this order. 1 found, 0 in none, -1 on
// error.
int find_registered(ModuleObject *module, PyObject *name, PyObject **value) {
  *value = nullptr;
  int found = find_in_registry<Slot::parameters>(module, name, value);
  if (found == 0) {
    found = find_in_registry<Slot::buffers>(module, name, value);
  }
  if (found == 0) {
    found = find_in_registry<Slot::modules>(module, name, value);
  }
  return found == 0 && PyErr_Occurred() ? -1 : found;  // of a key that was compared
}

// After a descriptor of the class raised: torch falls back to the registries, and so do we; but the
// error of the getter, which torch hides behind a generic one, is kept when no registry has the
// name.
PyObject *after_descriptor_error(ModuleObject *module, PyObject *name, Reach reach) {
  if (!reaches_registries(Py_TYPE(module), reach) ||
      !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return nullptr;
  }
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyObject *value;
  if (find_registered(module, name, &value) == 0) {
    PyErr_Restore(type, error, traceback);
    return nullptr;
  }
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  return value;
}

PyObject *get_slot_value(ModuleObject *module, Slot slot) {
  PyObject *value = require(module, slot);
  return Py_XNewRef(value);
}

PyObject *get_through_getset(PyObject *descriptor, PyObject *self_obj, PyObject *name) {
  const py::object used = own_dict_descriptor(py::reinterpret_borrow<py::object>(descriptor), name);
  return PyGetSetDescr_Type.tp_descr_get(used.ptr(), self_obj,
                                         reinterpret_cast<PyObject *>(Py_TYPE(self_obj)));
}

// The face that the function on the class is, if instances give something else in its place.
Face *native_face(PyTypeObject *type, PyObject *function) {
  Face *face = find_face(function);
  if (face && face->native == function) {
    take_native_slots(type);  // a call comes through Python code that nothing overrides
    return nullptr;
  }
  return face;
}

// What a read gives. `descriptor`: what the class has under the name, or null.
inline PyObject *get_attribute(ModuleObject *self, PyTypeObject *type, PyObject *descriptor,
                               PyObject *name, Reach reach) {
  PyObject *self_obj = as_object(self);
  descrgetfunc get = nullptr;
  if (descriptor) {
    get = Py_TYPE(descriptor)->tp_descr_get;
    if (get && Py_TYPE(descriptor)->tp_descr_set) {
      PyObject *value = Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)
                            ? get_through_getset(descriptor, self_obj, name)
                            : get(descriptor, self_obj, reinterpret_cast<PyObject *>(type));
      return value ? value : after_descriptor_error(self, name, reach);
    }
  }
  PyObject *own = instance_attribute(self, name);
  if (own || PyErr_Occurred()) {
    return own;
  }
  if (!self->state.exposed && self->state.initialized) {
    const SpecialName *special = find_special_name(name);
    if (special && special->slot >= 0) {
      return get_slot_value(self, static_cast<Slot>(special->slot));
    }
  }
  if (descriptor) {
    if (!get) {
      return Py_NewRef(descriptor);
    }
    if (Py_IS_TYPE(descriptor, &PyMethodDescr_Type) &&
        PyObject_TypeCheck(self_obj, PyDescr_TYPE(descriptor))) {
      return new_bound_method(descriptor, self_obj, nullptr);
    }
    if (face_count && PyFunction_Check(descriptor)) {
      if (Face *face = native_face(type, descriptor)) {
        return new_bound_method(face->native, self_obj, face);
      }
    }
    PyObject *value = get(descriptor, self_obj, reinterpret_cast<PyObject *>(type));
    return value ? value : after_descriptor_error(self, name, reach);
  }
  // Under the two-step slot the class's own __getattr__ decides, and reaches the registries through
  // super().
  if (reaches_registries(type, reach)) {
    PyObject *value;
    if (find_registered(self, name, &value) != 0) {
      return value;
    }
  }
  if (PyUnicode_Compare(name, names.deepcopy) == 0) {
    PyObject *method = native_deepcopy(self_obj);
    if (method || PyErr_Occurred()) {
      return method;
    }
  }
  raise_no_attribute(self_obj, name);
  return nullptr;
}

// A read for which the class need not be searched: a name of no class attribute. Null without an
// error when it gives nothing: then nothing has that plain name.
inline PyObject *read_known(ModuleObject *self, int slot, PyObject *name) {
  if (slot != NameFacts::kPlain && !self->state.exposed) {
    return self->state.initialized ? get_slot_value(self, static_cast<Slot>(slot)) : nullptr;
  }
  PyObject *value = instance_attribute(self, name);
  if (!value) {
    find_registered(self, name, &value);
  }
  return value;
}

PyObject *read_searching(PyObject *self_obj, PyObject *name, Reach reach) {
  // Both owned, before anything that may run user code: a key that is compared may delete the class
  // attribute, or give the object another class and this one its end.
  PyTypeObject *type = Py_TYPE(self_obj);
  Py_INCREF(type);
  // The version from before the search: code that it runs may change the class.
  const TypeVersion version = type_version(type);
  PyObject *descriptor = Py_XNewRef(borrowed_type_lookup(type, name));
  if (!descriptor) {
    name_facts.learn(type, version, name);
  }
  PyObject *value = get_attribute(as_module(self_obj), type, descriptor, name, reach);
  Py_XDECREF(descriptor);
  Py_DECREF(type);
  return value;
}

#ifdef Py_GIL_DISABLED

// What a read of a plain name gives where a table has it: new reference, or null without an error
// where it takes a longer look. Needs no lock: CPython's look-up in a dict takes none, and the
// tables that others replace meanwhile live as long as this reads.
PyObject *read_plain(const ModuleObject *self, PyObject *name) {
  const Reading::Moment reads_before = Reading::begin();
  PyObject *value = nullptr;
  for (PyObject *const *cell :
       {&self->dict, &self->state.parameters, &self->state.buffers, &self->state.modules}) {
    PyObject *table = load_cell(cell);
    if (table && PyDict_GetItemRef(table, name, &value) != 0) {
      break;
    }
  }
  Reading::end(reads_before);
  if (!value) {
    PyErr_Clear();  // of a key of another type: the longer look meets it again
  }
  return value;
}

#else

// Searches a registry, unless the tables before it have an answer.
inline void search(PyObject *mapping, PyObject *name, Lookup *looked_up, PyObject **value) {
  if (mapping && *looked_up == Lookup::missing) {
    *looked_up = look_up_interned(mapping, name, value);
  }
}

// What a read of a plain name gives where searching a few tables tells: new reference, or null
// without an error where it takes a longer look. Runs no user code. The name is from `name_facts`.
inline PyObject *read_plain(const ModuleObject *self, PyObject *name) {
  PyObject *value = nullptr;
  Lookup looked_up = self->dict ? look_up_interned(self->dict, name, &value) : Lookup::missing;
  // Null in exposed mode.
  search(self->state.parameters, name, &looked_up, &value);
  search(self->state.buffers, name, &looked_up, &value);
  search(self->state.modules, name, &looked_up, &value);
  return looked_up == Lookup::found ? Py_NewRef(value) : nullptr;
}

#endif

[[gnu::noinline]] PyObject *read_attribute(PyObject *self_obj, PyObject *name, Reach reach) {
  if (c_stack_ends()) {
    return nullptr;
  }
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "attribute name must be string, not '%.200s'",
                 Py_TYPE(name)->tp_name);
    return nullptr;
  }
  if (face_count) {
    native_counts.reads.add();
    if (Py_TYPE(self_obj)->tp_getattro != module_tp_getattro) {
      // Owned: that may run user code, which may give the object another class.
      const auto type =
          py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(Py_TYPE(self_obj)));
      take_native_slots(reinterpret_cast<PyTypeObject *>(type.ptr()));
    }
  }
  PyTypeObject *type = Py_TYPE(self_obj);
  if (reaches_registries(type, reach)) {
    const int slot = name_facts.find(type_version(type), name);
    if (slot != NameFacts::kUnknown) {
      PyObject *value = read_known(as_module(self_obj), slot, name);
      if (value || PyErr_Occurred()) {
        return value;
      }
      if (slot == NameFacts::kPlain) {
        raise_no_attribute(self_obj, name);
        return nullptr;
      }
    }
  }
  return read_searching(self_obj, name, reach);
}

// Out of line, so that a read without a watcher keeps its registers.
[[gnu::noinline, gnu::cold]] PyObject *read_watched(PyObject *self_obj, PyObject *name) {
  if (tell_use(self_obj, false) < 0) {
    return nullptr;
  }
  const NativeSection in_section;
  return read_attribute(self_obj, name, Reach::everything);
}

}  // namespace

PyObject *module_tp_getattro(PyObject *self_obj, PyObject *name) {
  if (is_watched()) {
    return read_watched(self_obj, name);
  }
  PyTypeObject *type = Py_TYPE(self_obj);
  if (has_native_getattro(type) && name_facts.find(type_version(type), name) == NameFacts::kPlain) {
    if (PyObject *value = read_plain(as_module(self_obj), name)) {
      native_counts.reads.add(face_count != 0);
      return value;
    }
  }
  const NativeSection in_section;
  return read_attribute(self_obj, name, Reach::everything);
}

PyObject *module_getattribute(PyObject *self_obj, PyObject *name) {
  return read_attribute(self_obj, name, Reach::no_registries);
}

PyObject *module_getattr(PyObject *self_obj, PyObject *name) {
  if (!PyUnicode_Check(name)) {
    // Only a call by hand gives such a name; no registry has it.
    if (PyObject_Hash(name) != -1 || !PyErr_Occurred()) {
      PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '%S'",
                   type_short_name(Py_TYPE(self_obj)), name);
    }
    return nullptr;
  }
  ModuleObject *module = as_module(self_obj);
  if (is_compact(module->state) && !has_native_getattro(Py_TYPE(self_obj))) {
    // A class that takes object's __getattribute__ later on reads nothing but the dict.
    const SpecialName *special = find_special_name(name);
    if (special && special->slot >= 0 && takes_slots_of_object(Py_TYPE(self_obj))) {
      return get_slot_value(module, static_cast<Slot>(special->slot));
    }
  }
  PyObject *value;
  if (find_registered(module, name, &value) != 0) {
    return value;
  }
  raise_no_attribute(self_obj, name);
  return nullptr;
}

PyObject *own_attribute(ModuleObject *module, PyObject *name) {
  if (!module->state.exposed) {
    const SpecialName *special = find_special_name(name);
    const bool internal = special && special->slot >= 0;
    if (internal && module->state.initialized && !type_lookup(Py_TYPE(module), name)) {
      return get_slot_value(module, static_cast<Slot>(special->slot));
    }
    // CPython's function sees the entries when they are in the dict.
    if ((internal || PyUnicode_Compare(name, names.dict) == 0) && expose(module) < 0) {
      return nullptr;
    }
  }
  return PyObject_GenericGetAttr(as_object(module), name);
}

void install_native_getattro(PyTypeObject *type) {
  const ClassInfo info = class_info(type);
  if (info.overrides(Virtual::getattr) || info.overrides(Virtual::getattribute)) {
    return;
  }
  type->tp_getattro = module_tp_getattro;
  PyType_Modified(type);
}

int has_attribute(ModuleObject *module, PyObject *name) {
  if (has_native_getattro(Py_TYPE(module)) && !type_has(Py_TYPE(module), name)) {
    if (const int own = has_instance_attribute(module, name)) {
      return own;
    }
    const SpecialName *special = find_special_name(name);
    if (special && special->slot >= 0 && has_slot(module, static_cast<Slot>(special->slot))) {
      return 1;
    }
    PyObject *value;
    const int found = find_registered(module, name, &value);
    Py_XDECREF(value);
    return found;
  }
  PyObject *value = PyObject_GetAttr(as_object(module), name);
  if (value) {
    Py_DECREF(value);
    return 1;
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return -1;
  }
  PyErr_Clear();
  return 0;
}

}  // namespace modtree
