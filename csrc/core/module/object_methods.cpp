// SPDX-License-Identifier: BSD-3-Clause
#include "module/object_methods.h"

#include <cstddef>
#include <cstring>

#include "module/attributes/assignment.h"
#include "module/attributes/plain_attributes.h"
#include "module/attributes/reading.h"
#include "module/type.h"
#include "python/call.h"
#include "python/internals.h"
#include "python/native_section.h"
#include "python/slot_guard.h"

// A slot wrapper such as object.__setattr__ is a descriptor that points to a record, and the record
// to a C function that unpacks the arguments, refuses objects with a native slot of their own, and
// calls the slot. Every class's __setattr__ shares the record, and CPython gives a new class the
// native slot only while the descriptor that it inherits has the function that the record has. So
// neither the descriptor nor its record is replaced: the function in the shared record is exchanged
// for one that takes modules and hands everything else to CPython's. docs/lifetime.md has the rest.

namespace modtree {

namespace {

// True for a call of object's own `slot` on an object with another one. Quick to reject the
// wrappers of other classes and plain objects.
template <class Function>
bool jumps_over(PyObject *args, void *wrapped, Function of_object, Function of_self,
                Py_ssize_t arguments) {
  return wrapped == reinterpret_cast<void *>(of_object) && of_self != of_object &&
         PyTuple_GET_SIZE(args) == arguments;
}

constexpr auto kModuleSize = static_cast<Py_ssize_t>(sizeof(ModuleObject));

// is_module() without the walk over the bases of ordinary objects, which are too small.
bool is_module_quickly(PyObject *value) {
  return Py_TYPE(value)->tp_basicsize >= kModuleSize && is_module(value);
}

int check_name(PyObject *name) {
  if (PyUnicode_Check(name)) {
    return 0;
  }
  PyErr_Format(PyExc_TypeError, "attribute name must be string, not '%.200s'",
               Py_TYPE(name)->tp_name);
  return -1;
}

PyObject *none_or_error(int result) { return result < 0 ? nullptr : Py_NewRef(Py_None); }

// --- what takes the place of CPython's functions

wrapperfunc wrap_setattr, wrap_delattr, wrap_getattribute;  // CPython's own

PyObject *object_setattr(PyObject *self_obj, PyObject *args, void *wrapped) {
  const NativeSection in_section;
  if (jumps_over(args, wrapped, PyBaseObject_Type.tp_setattro, Py_TYPE(self_obj)->tp_setattro, 2)) {
    PyObject *name = PyTuple_GET_ITEM(args, 0);
    PyObject *value = PyTuple_GET_ITEM(args, 1);
    if (is_module_quickly(self_obj)) {
      return none_or_error(check_name(name) < 0 ? -1 : slot_guard(-1, [&] {
        return assign_plain(as_module(self_obj), name, value);
      }));
    }
    // torch's Module ends here with what it takes for a plain attribute.
    if (is_module_quickly(value) && warn_of_foreign_parent(self_obj, name, value) < 0) {
      return nullptr;
    }
  }
  return wrap_setattr(self_obj, args, wrapped);
}

PyObject *object_delattr(PyObject *self_obj, PyObject *args, void *wrapped) {
  const NativeSection in_section;
  if (jumps_over(args, wrapped, PyBaseObject_Type.tp_setattro, Py_TYPE(self_obj)->tp_setattro, 1) &&
      is_module_quickly(self_obj)) {
    PyObject *name = PyTuple_GET_ITEM(args, 0);
    return none_or_error(check_name(name) < 0 ? -1 : slot_guard(-1, [&] {
      return delete_plain(as_module(self_obj), name);
    }));
  }
  return wrap_delattr(self_obj, args, wrapped);
}

PyObject *object_getattribute(PyObject *self_obj, PyObject *args, void *wrapped) {
  const NativeSection in_section;
  if (jumps_over(args, wrapped, PyBaseObject_Type.tp_getattro, Py_TYPE(self_obj)->tp_getattro, 1) &&
      is_module_quickly(self_obj)) {
    PyObject *name = PyTuple_GET_ITEM(args, 0);
    return check_name(name) < 0
               ? nullptr
               : slot_guard<PyObject *>(
                     nullptr, [&] { return own_attribute(as_module(self_obj), name); });
  }
  return wrap_getattribute(self_obj, args, wrapped);
}

// Refuses modules as it does other native classes, unless it is called through the vectorcall of
// object.__new__.
PyObject *call_builtin(PyObject *builtin, PyObject *args, PyObject *keywords) {
  const auto function = reinterpret_cast<PyCFunctionWithKeywords>(
      reinterpret_cast<void (*)()>(PyCFunction_GET_FUNCTION(builtin)));
  return function(PyCFunction_GET_SELF(builtin), args, keywords);
}

// The arguments from `first` on as a tuple and a dict (null without keywords). -1 on error.
int collect_arguments(PyObject *const *args, Py_ssize_t first, Py_ssize_t count,
                      PyObject *keyword_names, py::object *positional, py::object *keywords) {
  *positional = py::reinterpret_steal<py::object>(PyTuple_New(count - first));
  if (!*positional) {
    return -1;
  }
  for (Py_ssize_t i = first; i < count; ++i) {
    PyTuple_SET_ITEM(positional->ptr(), i - first, Py_NewRef(args[i]));
  }
  const Py_ssize_t named = keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0;
  if (named == 0) {
    return 0;
  }
  *keywords = py::reinterpret_steal<py::object>(PyDict_New());
  if (!*keywords) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < named; ++i) {
    if (PyDict_SetItem(keywords->ptr(), PyTuple_GET_ITEM(keyword_names, i), args[count + i]) < 0) {
      return -1;
    }
  }
  return 0;
}

PyObject *object_new(PyObject *builtin, PyObject *const *args, std::size_t flagged_count,
                     PyObject *keyword_names) {
  const NativeSection in_section;
  const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  PyTypeObject *type =
      count > 0 && PyType_Check(args[0]) ? reinterpret_cast<PyTypeObject *>(args[0]) : nullptr;
  const bool of_module =
      type && type->tp_basicsize >= kModuleSize && PyType_IsSubtype(type, module_base_type);
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    if (of_module && count == 1 && !keyword_names) {
      return module_tp_new(type, nullptr, nullptr);
    }
    py::object positional, keywords;
    if (collect_arguments(args, of_module ? 1 : 0, count, keyword_names, &positional, &keywords) <
        0) {
      return nullptr;
    }
    return of_module ? module_tp_new(type, positional.ptr(), keywords.ptr())
                     : call_builtin(builtin, positional.ptr(), keywords.ptr());
  });
}

// --- the exchange

// The record behind object's slot wrapper of this name; null when anything about it is not as
// expected.
struct wrapperbase *find_record(const char *name, void *slot_of_object, std::size_t offset) {
  const auto key = py::reinterpret_steal<py::object>(PyUnicode_InternFromString(name));
  const py::object own_object = key ? type_lookup(&PyBaseObject_Type, key.ptr()) : py::object();
  const py::object type_object = key ? type_lookup(&PyType_Type, key.ptr()) : py::object();
  PyObject *own = own_object.ptr();
  PyObject *of_type = type_object.ptr();
  if (!own || !of_type || !Py_IS_TYPE(own, &PyWrapperDescr_Type) ||
      !Py_IS_TYPE(of_type, &PyWrapperDescr_Type)) {
    PyErr_Clear();
    return nullptr;
  }
  const auto *descriptor = reinterpret_cast<PyWrapperDescrObject *>(own);
  struct wrapperbase *record = descriptor->d_base;
  const bool expected = PyDescr_TYPE(own) == &PyBaseObject_Type &&
                        descriptor->d_wrapped == slot_of_object && record &&
                        record == reinterpret_cast<PyWrapperDescrObject *>(of_type)->d_base &&
                        record->name && std::strcmp(record->name, name) == 0 &&
                        record->offset == static_cast<int>(offset) && record->wrapper &&
                        record->flags == 0 && record->name_strobj == key.ptr();
  return expected ? record : nullptr;
}

// object.__new__ when it is the builtin whose function the module type's __new__ has too; null
// otherwise. Borrowed.
PyCFunctionObject *find_builtin_new() {
  const auto key = py::reinterpret_steal<py::object>(PyUnicode_InternFromString("__new__"));
  const py::object own_object = key ? type_lookup(&PyBaseObject_Type, key.ptr()) : py::object();
  const py::object module_object = key ? type_lookup(module_base_type, key.ptr()) : py::object();
  PyObject *own = own_object.ptr();
  PyObject *of_module = module_object.ptr();
  if (!own || !of_module || !Py_IS_TYPE(own, &PyCFunction_Type) ||
      !Py_IS_TYPE(of_module, &PyCFunction_Type)) {
    PyErr_Clear();
    return nullptr;
  }
  auto *builtin = reinterpret_cast<PyCFunctionObject *>(own);
  const bool expected =
      PyCFunction_GET_SELF(own) == reinterpret_cast<PyObject *>(&PyBaseObject_Type) &&
      PyCFunction_GET_FLAGS(own) == (METH_VARARGS | METH_KEYWORDS) && !builtin->vectorcall &&
      PyCFunction_GET_FUNCTION(own) == PyCFunction_GET_FUNCTION(of_module);
  return expected ? builtin : nullptr;
}

struct Exchange {
  struct wrapperbase *record;
  wrapperfunc original;
  wrapperfunc ours;
};
Exchange exchanges[3];
PyCFunctionObject *builtin_new = nullptr;
bool exchanged = false;

void install(bool on) {
  for (const Exchange &exchange : exchanges) {
    exchange.record->wrapper = on ? exchange.ours : exchange.original;
  }
  builtin_new->vectorcall = on ? object_new : nullptr;
  exchanged = on;
}

// True if new classes still get object's own slots, and plain objects and types behave as before.
bool works() {
  const py::handle object(reinterpret_cast<PyObject *>(&PyBaseObject_Type));
  const auto made = py::reinterpret_steal<py::object>(PyObject_CallFunction(
      reinterpret_cast<PyObject *>(&PyType_Type), "s(O){}", "Probe", object.ptr()));
  const auto name = py::reinterpret_steal<py::object>(PyUnicode_FromString("x"));
  const py::object probe = made && name ? call_method(object, "__new__", made) : py::object();
  bool right = probe && call_method(object, "__setattr__", probe, name, Py_True) &&
               call_method(object, "__getattribute__", probe, name).is(py::handle(Py_True)) &&
               call_method(object, "__delattr__", probe, name) &&
               !PyObject_HasAttr(probe.ptr(), name.ptr());
  if (right) {
    const py::object set_on_type = call_method(object, "__setattr__", made, name, Py_True);
    right = !set_on_type && PyErr_ExceptionMatches(PyExc_TypeError);
  }
  PyErr_Clear();  // of the refusal that is expected, or of what failed before it
  const auto *made_type = reinterpret_cast<PyTypeObject *>(made.ptr());
  return right && made_type->tp_new == PyBaseObject_Type.tp_new &&
         made_type->tp_setattro == PyBaseObject_Type.tp_setattro &&
         made_type->tp_getattro == PyBaseObject_Type.tp_getattro;
}

}  // namespace

bool exchange_object_methods(bool on) {
  if (!builtin_new || on == exchanged) {
    return exchanged;
  }
  install(on);
  if (on && !works()) {
    install(false);
  }
  return exchanged;
}

bool object_new_takes_modules() { return exchanged; }

void init_object_methods() {
  if (!kSlotRecordsAreKnown || !may_know_internals("object_methods")) {
    return;
  }
  struct wrapperbase *set =
      find_record("__setattr__", reinterpret_cast<void *>(PyBaseObject_Type.tp_setattro),
                  offsetof(PyTypeObject, tp_setattro));
  struct wrapperbase *del =
      find_record("__delattr__", reinterpret_cast<void *>(PyBaseObject_Type.tp_setattro),
                  offsetof(PyTypeObject, tp_setattro));
  struct wrapperbase *get =
      find_record("__getattribute__", reinterpret_cast<void *>(PyBaseObject_Type.tp_getattro),
                  offsetof(PyTypeObject, tp_getattro));
  PyCFunctionObject *builtin = find_builtin_new();
  if (!set || !del || !get || !builtin || set->wrapper == object_setattr) {
    return;  // the last: a second interpreter after the first
  }
  wrap_setattr = set->wrapper;
  wrap_delattr = del->wrapper;
  wrap_getattribute = get->wrapper;
  exchanges[0] = {set, wrap_setattr, object_setattr};
  exchanges[1] = {del, wrap_delattr, object_delattr};
  exchanges[2] = {get, wrap_getattribute, object_getattribute};
  builtin_new = builtin;
  exchange_object_methods(true);
}

void leave_slots_to_object() {
  if (!exchanged) {
    return;
  }
  // Only the names go: the slots of the base, and of the classes below, stay native.
  for (const char *name : {"__setattr__", "__delattr__", "__getattribute__"}) {
    if (PyDict_DelItemString(module_base_type->tp_dict, name) < 0) {
      throw py::error_already_set();
    }
  }
  PyType_Modified(module_base_type);
}

}  // namespace modtree
