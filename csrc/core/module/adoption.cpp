// SPDX-License-Identifier: BSD-3-Clause
#include "module/adoption.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "module/attributes/assignment.h"
#include "module/attributes/reading.h"
#include "module/bases_behind.h"
#include "module/call.h"
#include "module/class_info.h"
#include "module/globals.h"
#include "module/object_methods.h"
#include "module/torch_facts.h"
#include "python/call.h"
#include "python/loaded_library.h"
#include "python/native_section.h"

namespace modtree {

int face_count = 0;
TracingState tracing_state = nullptr;
PyObject *tracing_function = nullptr;  // strong
PyObject *shown_call = nullptr;        // strong
NativeCounts native_counts;
bool is_reporting = false;
TorchFacts torch_facts;
PyObject *torch_warning = nullptr;

namespace {

// Open addressing on the address of the function; there are some thirty faces.
constexpr std::size_t kFaceCapacity = 128;
std::array<Face, kFaceCapacity> faces{};  // strong; never removed

std::size_t place_of(PyObject *function) {
  const auto address = reinterpret_cast<std::uintptr_t>(function);
  return ((address >> 4) ^ (address >> 11)) % kFaceCapacity;
}

void add_face(const py::object &function, const py::object &native) {
  std::size_t place = place_of(function.ptr());
  while (faces[place].function) {
    place = (place + 1) % kFaceCapacity;
  }
  faces[place] = {function.inc_ref().ptr(), native.inc_ref().ptr(), 0};
  ++face_count;
}

// Directly into the class's dict: CPython does not look at the slots, which stay native.
void store(PyTypeObject *type, PyObject *name, PyObject *value) {
  if (PyDict_SetItem(type->tp_dict, name, value) < 0) {
    throw py::error_already_set();
  }
}

// What CPython must see to keep in step: the names of the type, and a slot that is not native.
bool belongs_to_type(PyObject *name) {
  for (const char *text : {"__name__", "__qualname__", "__module__", "__doc__", "__repr__"}) {
    if (PyUnicode_CompareWithASCIIString(name, text) == 0) {
      return true;
    }
  }
  return false;
}

// modtree's Module goes on with what it inherits now.
void pin(PyTypeObject *sealed, PyObject *name) {
  if (class_dict_get(sealed, name)) {
    return;
  }
  if (const py::object inherited = type_lookup(sealed, name)) {
    store(sealed, name, inherited.ptr());
  }
}

// The native method that a function of this name represents; null when it represents none.
py::object native_method(PyObject *name, PyObject *function) {
  auto native = py::reinterpret_borrow<py::object>(class_dict_get(module_base_type, name));
  const bool is_method = native && Py_IS_TYPE(native.ptr(), &PyMethodDescr_Type);
  if (!is_method || !PyFunction_Check(function) ||
      PyUnicode_CompareWithASCIIString(name, "__getattr__") == 0) {
    return py::object();
  }
  if (PyUnicode_Compare(name, names.call_impl) == 0) {
    return py::reinterpret_borrow<py::object>(function);
  }
  return native;
}

PyObject *noted_classes = nullptr;  // strong: a dict of (class, names of what it overrides)

// What a class can override so that its instances go through Python code where others do not.
constexpr Virtual kNoted[] = {
    Virtual::getattr,
    Virtual::getattribute,
    Virtual::setattr,
    Virtual::delattr,
    Virtual::call,
    Virtual::call_impl,
    Virtual::named_modules,
    Virtual::named_children,
    Virtual::children,
    Virtual::modules,
    Virtual::named_parameters,
    Virtual::parameters,
    Virtual::named_buffers,
    Virtual::buffers,
    Virtual::named_members,
    Virtual::train,
    Virtual::apply,
    Virtual::apply_,
    Virtual::state_dict,
    Virtual::load_state_dict,
    Virtual::save_to_state_dict,
    Virtual::load_from_state_dict,
    Virtual::register_parameter,
    Virtual::register_buffer,
    Virtual::add_module,
    Virtual::getstate,
    Virtual::setstate,
    Virtual::reduce,
    Virtual::reduce_ex,
    Virtual::copy,
    Virtual::deepcopy,
};

// The names of what the class overrides: null on error.
py::object noted_overrides(PyTypeObject *type) {
  const ClassInfo info = class_info(type);
  auto found = py::reinterpret_steal<py::object>(PyList_New(0));
  for (const Virtual method : kNoted) {
    if (found && info.overrides(method) && PyList_Append(found.ptr(), virtual_name(method)) < 0) {
      return py::object();
    }
  }
  return found;
}

// `__setattr__` and `__delattr__` as methods: CPython refuses to call its wrappers of the slots
// where a Python function is in the slot of a base (a patched Module).
PyObject *set_attribute(PyObject *self_obj, PyObject *const *args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_Format(PyExc_TypeError, "__setattr__ takes a name and a value, got %zd arguments", count);
    return nullptr;
  }
  if (module_tp_setattro(self_obj, args[0], args[1]) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *delete_attribute(PyObject *self_obj, PyObject *name) {
  if (module_tp_setattro(self_obj, name, nullptr) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef set_attribute_def = {
    "__setattr__",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<set_attribute>)),
    METH_FASTCALL, "Module.__setattr__."};
PyMethodDef delete_attribute_def = {"__delattr__", entry<delete_attribute>, METH_O,
                                    "Module.__delattr__."};

PyObject **table_of(const char *name) {
  struct Entry {
    const char *name;
    PyObject **table;
  };
  static const Entry kTables[] = {
      {"_global_buffer_registration_hooks", &global_hooks.buffer_registration},
      {"_global_module_registration_hooks", &global_hooks.module_registration},
      {"_global_parameter_registration_hooks", &global_hooks.parameter_registration},
      {"_global_backward_pre_hooks", &global_hooks.backward_pre},
      {"_global_backward_hooks", &global_hooks.backward},
      {"_global_forward_pre_hooks", &global_hooks.forward_pre},
      {"_global_forward_hooks", &global_hooks.forward},
      {"_global_forward_hooks_always_called", &global_hooks.forward_always_called},
      {"_global_forward_hooks_with_kwargs", &global_hooks.forward_with_kwargs},
  };
  for (const Entry &entry : kTables) {
    if (std::strcmp(entry.name, name) == 0) {
      return entry.table;
    }
  }
  return nullptr;
}

}  // namespace

Face *find_face(PyObject *function) {
  std::size_t place = place_of(function);
  while (faces[place].function && faces[place].function != function) {
    place = (place + 1) % kFaceCapacity;
  }
  return faces[place].function ? &faces[place] : nullptr;
}

void take_native_slots(PyTypeObject *type) {
  if (!face_count) {
    install_native_getattro(type);
    return;
  }
  // Looking at the class may run code that gives this module another one.
  const auto keep = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(type));
  const ClassInfo info = class_info(type);
  bool changed = false;
  const auto take = [&changed](auto &slot, auto native, bool overridden) {
    if (slot != native && !overridden) {
      slot = native;
      changed = true;
    }
  };
  take(type->tp_getattro, module_tp_getattro,
       info.overrides_any<Virtual::getattr, Virtual::getattribute>());
  take(type->tp_setattro, module_tp_setattro,
       info.overrides_any<Virtual::setattr, Virtual::delattr>());
  take(type->tp_call, module_tp_call, info.overrides(Virtual::call));
  if (changed) {
    PyType_Modified(type);
  }
}

void add_attribute_methods(py::handle m) {
  const std::pair<const char *, PyMethodDef *> methods[] = {
      {"_module_setattr", &set_attribute_def}, {"_module_delattr", &delete_attribute_def}};
  for (const auto &[name, definition] : methods) {
    const auto method =
        py::reinterpret_steal<py::object>(PyDescr_NewMethod(module_base_type, definition));
    if (!method || PyObject_SetAttrString(m.ptr(), name, method.ptr()) < 0) {
      throw py::error_already_set();
    }
  }
}

void adopt_module_class(const py::dict &attributes, py::handle sealed, py::handle left) {
  if (face_count) {
    throw std::runtime_error("a module class was adopted already");
  }
  if (!PyType_Check(sealed.ptr()) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(sealed.ptr()), module_base_type)) {
    throw py::type_error("expected modtree's Module as `sealed`");
  }
  for (const auto &[name, value] : attributes) {
    if (!PyUnicode_Check(name.ptr())) {
      throw py::type_error("the names of attributes must be str");
    }
  }
  auto *sealed_type = reinterpret_cast<PyTypeObject *>(sealed.ptr());
  static PyMethodDef kGetattribute = {"__getattribute__", entry<module_getattribute>, METH_O,
                                      nullptr};
  const py::object getattribute = handed_method(
      Virtual::getattribute,
      py::reinterpret_steal<py::object>(PyDescr_NewMethod(module_base_type, &kGetattribute)));
  const py::object reduce_ex =
      handed_method(Virtual::reduce_ex, type_lookup(module_base_type, names.reduce_ex));
  for (const auto &[name, value] : attributes) {
    pin(sealed_type, name.ptr());
  }
  // Past Module comes object.__new__, which takes modules as well (object_methods.h).
  if (exchange_object_methods(true)) {
    const py::str new_name("__new__");
    pin(sealed_type, new_name.ptr());
    if (PyDict_DelItem(module_base_type->tp_dict, new_name.ptr()) < 0) {
      throw py::error_already_set();
    }
  }
  const auto base =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject *>(module_base_type));
  for (const auto &[name, value] : attributes) {
    if (belongs_to_type(name.ptr())) {
      if (PyObject_SetAttr(base.ptr(), name.ptr(), value.ptr()) < 0) {
        throw py::error_already_set();
      }
      continue;
    }
    const int is_left = PySequence_Contains(left.ptr(), name.ptr());
    if (is_left < 0) {
      throw py::error_already_set();
    }
    if (const py::object native = is_left ? py::object() : native_method(name.ptr(), value.ptr())) {
      add_face(py::reinterpret_borrow<py::object>(value), native);
    }
    store(module_base_type, name.ptr(), value.ptr());
  }
  // Under the two-step slot CPython asks for it first, and for __getattr__ then.
  store(module_base_type, names.getattribute, getattribute.ptr());
  store(module_base_type, names.reduce_ex, reduce_ex.ptr());
  PyType_Modified(module_base_type);
  seal_adopted_class(module_base_type);
}

void set_torch_facts(const py::dict &facts, py::handle warning) {
  TorchFacts found;
  const std::pair<const char *, bool *> members[] = {
      {"ordered_registries", &found.ordered_registries},
      {"modules_may_repeat", &found.modules_may_repeat},
      {"tensor_like_buffers", &found.tensor_like_buffers},
      {"buffer_class", &found.buffer_class},
      {"patches_take_persistent", &found.patches_take_persistent},
      {"state_dict_post_hooks", &found.state_dict_post_hooks},
      {"scalars_from_one", &found.scalars_from_one},
  };
  for (const auto &[name, member] : members) {
    const py::object value = facts[name];
    *member = value.is(py::handle(Py_True));
  }
  if (facts.size() != std::size(members)) {
    throw py::key_error("there is a fact that native code does not know");
  }
  torch_facts = found;
  Py_XDECREF(std::exchange(torch_warning, warning.is_none() ? nullptr : warning.inc_ref().ptr()));
}

int warn_as_torch(const char *begins, PyObject *text) {
  const auto owned = py::reinterpret_steal<py::object>(text);
  if (!owned) {
    return -1;
  }
  if (!torch_warning) {
    return PyErr_WarnFormat(PyExc_UserWarning, 1, "%U", owned.ptr());
  }
  const auto function = py::reinterpret_borrow<py::object>(torch_warning);
  const auto done = py::reinterpret_steal<py::object>(
      PyObject_CallFunction(function.ptr(), "sO", begins, owned.ptr()));
  return done ? 0 : -1;
}

void start_report() {
  if (!noted_classes) {
    noted_classes = py::dict().release().ptr();
  }
  is_reporting = true;
}

int note_new_instance(PyTypeObject *type) {
  // By address: a metaclass may have any __hash__. The class in the entry keeps it alive.
  const auto key = py::reinterpret_steal<py::object>(PyLong_FromVoidPtr(type));
  const int known = key ? PyDict_Contains(noted_classes, key.ptr()) : -1;
  if (known != 0) {
    return known < 0 ? -1 : 0;
  }
  const py::object overridden = noted_overrides(type);
  const auto entry = py::reinterpret_steal<py::object>(
      overridden ? PyTuple_Pack(2, type, overridden.ptr()) : nullptr);
  return entry ? PyDict_SetItem(noted_classes, key.ptr(), entry.ptr()) : -1;
}

py::dict native_report() {
  py::dict methods;
  for (const Face &face : faces) {
    if (face.function && face.native != face.function) {
      methods[py::handle(get_attribute(face.function, "__name__"))] = py::int_(face.calls);
    }
  }
  py::dict report;
  report["reads"] = py::int_(native_counts.reads.value());
  report["writes"] = py::int_(native_counts.writes.value());
  report["calls"] = py::int_(native_counts.calls.value());
  report["methods"] = methods;
  report["classes"] = py::reinterpret_steal<py::object>(noted_classes ? PyDict_Values(noted_classes)
                                                                      : PyList_New(0));
  return report;
}

void rebind_global_hooks(const std::string &name, py::handle table) {
  PyObject **cell = table_of(name.c_str());
  if (!cell) {
    throw py::value_error("there is no table of hooks called " + name);
  }
  if (!PyDict_Check(table.ptr())) {
    throw py::type_error(name + " must be a dict, got '" + Py_TYPE(table.ptr())->tp_name + "'");
  }
  // The old one is kept: a call may be at work on it.
  *cell = table.inc_ref().ptr();
}

void set_tracing_probe(const std::string &library, py::handle function) {
  if (!PyCallable_Check(function.ptr())) {
    throw py::type_error("expected a callable as `function`");
  }
  tracing_state = reinterpret_cast<TracingState>(
      find_in_loaded_library(library.c_str(), "_ZN5torch3jit6tracer15getTracingStateEv"));
  tracing_function = function.inc_ref().ptr();
}

void show_calls(py::handle function) {
  PyObject *shown = nullptr;
  if (!function.is_none()) {
    if (!PyFunction_Check(function.ptr())) {
      throw py::type_error("expected a function written in Python, or None");
    }
    shown = function.inc_ref().ptr();
  }
  // A call that is at work owns what it runs.
  const auto old = py::reinterpret_steal<py::object>(std::exchange(shown_call, shown));
}

PyObject *call_to_show() {
  return shown_call && PyThreadState_Get()->c_profilefunc ? shown_call : nullptr;
}

int ask_tracing_function() {
  const auto state = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(tracing_function));
  return state ? !state.is_none() : -1;
}

}  // namespace modtree
