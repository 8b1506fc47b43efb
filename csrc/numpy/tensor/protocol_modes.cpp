// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/protocol_modes.h"

#include <utility>
#include <vector>

#include "python/compat.h"
#include "python/interned.h"
#include "python/native_section.h"
#include "python/new_type.h"
#include "python/once.h"
#include "python/slot_guard.h"
#include "tensor/override.h"

namespace modtree {

namespace {

// Empty when a thread ends, as each mode leaves in the function that it was entered in.
thread_local std::vector<PyObject *> t_modes;  // owned
PyObject *g_disabled_implementation = nullptr;

void push(PyObject *mode) {
  t_modes.push_back(mode);
  ++active_modes;
}

PyObject *pop() {
  PyObject *mode = t_modes.back();
  t_modes.pop_back();
  --active_modes;
  return mode;
}

PyObject *push_mode(PyObject *, PyObject *mode) {
  return slot_guard(static_cast<PyObject *>(nullptr), [&]() -> PyObject * {
    if (!type_has(Py_TYPE(mode), names.torch_function)) {
      PyErr_Format(PyExc_TypeError,
                   "a function mode must have a method __torch_function__, got '%.200s'",
                   Py_TYPE(mode)->tp_name);
      return nullptr;
    }
    push(Py_NewRef(mode));
    return Py_NewRef(Py_None);
  });
}

PyObject *pop_mode(PyObject *, PyObject *) {
  if (t_modes.empty()) {
    PyErr_SetString(PyExc_RuntimeError, "no function mode is active in this thread");
    return nullptr;
  }
  return pop();
}

PyObject *len_modes(PyObject *, PyObject *) { return PyLong_FromSize_t(t_modes.size()); }

PyObject *mode_at(PyObject *, PyObject *arg) {
  const Py_ssize_t place = PyNumber_AsSsize_t(arg, PyExc_IndexError);
  if (place == -1 && PyErr_Occurred()) {
    return nullptr;
  }
  if (place < 0 || static_cast<std::size_t>(place) >= t_modes.size()) {
    PyErr_Format(PyExc_IndexError, "there are %zu function modes, no number %zd", t_modes.size(),
                 place);
    return nullptr;
  }
  return Py_NewRef(t_modes[static_cast<std::size_t>(place)]);
}

PyObject *is_enabled(PyObject *, PyObject *) {
  return PyBool_FromLong(protocol_state() == ProtocolState::on);
}

// func(*args, **kwargs) without the classes of the arguments taking part.
PyObject *disabled_impl(PyObject *, PyObject *arguments) {
  const auto none = py::reinterpret_steal<py::object>(PyTuple_New(0));
  PyObject *func, *types, *args = none.ptr(), *kwargs = Py_None;
  if (!none || !PyArg_ParseTuple(arguments, "OO|OO:_disabled_torch_function_impl", &func, &types,
                                 &args, &kwargs)) {
    return nullptr;
  }
  return call_without_classes(func, args == Py_None ? none.ptr() : args, kwargs);
}

// What torch.jit.trace is at work on: nothing, here.
PyObject *tracing_state(PyObject *, PyObject *) { Py_RETURN_NONE; }

// has_torch_function_variadic(*args)
PyObject *has_variadic(PyObject *, PyObject *const *args, Py_ssize_t nargs) {
  const bool by_mode =
      active_modes != 0 && mode_count() != 0 && protocol_state() != ProtocolState::off;
  const bool found = by_mode || any_class_overrides(args, nargs);
  return PyErr_Occurred() ? nullptr : PyBool_FromLong(found);
}

PyObject *has_unary(PyObject *, PyObject *arg) { return has_variadic(nullptr, &arg, 1); }

PyObject *has_any(PyObject *, PyObject *args) {
  const auto all = py::reinterpret_steal<py::object>(tuple_of_items(args));
  if (!all) {
    return nullptr;
  }
  PyObject *sequence = all.ptr();
  return has_variadic(nullptr, &sequence, 1);
}

// _handle_torch_function(func, relevant, args, kwargs)
PyObject *handle(PyObject *, PyObject *arguments) {
  PyObject *func, *relevant, *args, *kwargs;
  if (!PyArg_ParseTuple(arguments, "OO!O!O!", &func, &PyTuple_Type, &relevant, &PyTuple_Type, &args,
                        &PyDict_Type, &kwargs)) {
    return nullptr;
  }
  return slot_guard(static_cast<PyObject *>(nullptr),
                    [&] { return handle_override(func, relevant, args, kwargs); });
}

template <typename F>
PyCFunction as_method(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kModeFunctions[] = {
    {"_push_on_torch_function_stack", entry<push_mode>, METH_O, nullptr},
    {"_pop_torch_function_stack", entry<pop_mode>, METH_NOARGS, nullptr},
    {"_len_torch_function_stack", entry<len_modes>, METH_NOARGS, nullptr},
    {"_get_function_stack_at", entry<mode_at>, METH_O, nullptr},
    {"_is_torch_function_enabled", entry<is_enabled>, METH_NOARGS, nullptr},
    {"_disabled_torch_function_impl", entry<disabled_impl>, METH_VARARGS, nullptr},
    {"_handle_torch_function", entry<handle>, METH_VARARGS, nullptr},
    {"_get_tracing_state", entry<tracing_state>, METH_NOARGS, nullptr},
    {"_has_torch_function", entry<has_any>, METH_O, nullptr},
    {"_has_torch_function_unary", entry<has_unary>, METH_O, nullptr},
    {"_has_torch_function_variadic", as_method(entry<has_variadic>), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// --- the context managers

struct SwitchObject {
  PyObject_HEAD ProtocolState old;
  bool entered;
};

SwitchObject *as_switch(PyObject *obj) { return reinterpret_cast<SwitchObject *>(obj); }

template <ProtocolState kState>
PyObject *switch_enter(PyObject *obj, PyObject *) {
  SwitchObject *self = as_switch(obj);
  if (self->entered) {
    PyErr_Format(PyExc_RuntimeError, "%.200s() was entered already: make another one",
                 Py_TYPE(obj)->tp_name);
    return nullptr;
  }
  const bool stays_off = protocol_state() == ProtocolState::off;
  self->old = set_protocol_state(stays_off ? ProtocolState::off : kState);
  self->entered = true;
  return Py_NewRef(obj);
}

PyObject *switch_exit(PyObject *obj, PyObject *) {
  SwitchObject *self = as_switch(obj);
  if (self->entered) {
    set_protocol_state(self->old);
    self->entered = false;
  }
  Py_RETURN_NONE;
}

template <ProtocolState kState>
PyMethodDef kSwitchMethods[] = {
    {"__enter__", entry<switch_enter<kState>>, METH_NOARGS, nullptr},
    {"__exit__", entry<switch_exit>, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

template <ProtocolState kState>
void make_switch(py::handle m, const char *name, const char *full_name, const char *doc) {
  PyType_Slot slots[] = {
      {Py_tp_methods, kSwitchMethods<kState>},
      {Py_tp_doc, const_cast<char *>(doc)},
      {0, nullptr},
  };
  PyType_Spec spec = {full_name, sizeof(SwitchObject), 0, Py_TPFLAGS_DEFAULT, slots};
  new_type(m, name, &spec);
}

}  // namespace

std::size_t mode_count() { return active_modes == 0 ? 0 : t_modes.size(); }

SuspendedMode::SuspendedMode() : mode_(py::reinterpret_steal<py::object>(pop())) {}

SuspendedMode::~SuspendedMode() { push(mode_.release().ptr()); }

PyObject *disabled_implementation() { return g_disabled_implementation; }

void add_protocol(py::handle m) {
  if (PyModule_AddFunctions(m.ptr(), kModeFunctions) < 0) {
    throw py::error_already_set();
  }
  g_disabled_implementation = PyObject_GetAttrString(m.ptr(), "_disabled_torch_function_impl");
  if (g_disabled_implementation == nullptr) {
    throw py::error_already_set();
  }
  make_switch<ProtocolState::no_subclasses>(
      m, "DisableTorchFunctionSubclass", "modtree._C.DisableTorchFunctionSubclass",
      "DisableTorchFunctionSubclass()\n--\n\n"
      "A context in which the classes of arguments take no part in functions; modes do.");
  make_switch<ProtocolState::off>(
      m, "DisableTorchFunction", "modtree._C.DisableTorchFunction",
      "DisableTorchFunction()\n--\n\n"
      "A context in which neither the classes of arguments nor modes take part in functions.");
  make_overridable_type(m);
  // The class of Tensor's class: a metaclass of its own would make every isinstance() slower.
  m.attr("_TensorMeta") = py::handle(reinterpret_cast<PyObject *>(&PyType_Type));
}

}  // namespace modtree
