// SPDX-License-Identifier: BSD-3-Clause
#include "module/adoption.h"

#include <array>
#include <cstring>
#include <string>

#include "module/attributes.h"
#include "module/call.h"
#include "module/class_info.h"
#include "module/globals.h"
#include "module/object_methods.h"
#include "module/type.h"

namespace modtree {

int face_count = 0;
TracingState tracing_state = nullptr;
PyObject *tracing_function = nullptr;  // strong

namespace {

struct Face {
  PyObject *function;
  PyObject *native;
};

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
  faces[place] = {function.inc_ref().ptr(), native.inc_ref().ptr()};
  ++face_count;
}

// Directly into the class's dict: CPython does not look at the slots, which stay native.
void store(PyTypeObject *type, PyObject *name, PyObject *value) {
  if (PyDict_SetItem(type->tp_dict, name, value) < 0) {
    throw py::error_already_set();
  }
}

bool is_name_of_type(PyObject *name) {
  for (const char *text : {"__name__", "__qualname__", "__module__", "__doc__"}) {
    if (PyUnicode_CompareWithASCIIString(name, text) == 0) {
      return true;
    }
  }
  return false;
}

// modtree's Module goes on with what it inherits now.
void pin(PyTypeObject *sealed, PyObject *name) {
  if (dict_get_str(sealed->tp_dict, name)) {
    return;
  }
  if (const py::object inherited = type_lookup(sealed, name)) {
    store(sealed, name, inherited.ptr());
  }
}

// The native method that a function of this name stands for; null when it stands for none.
py::object native_method(PyObject *name, PyObject *function) {
  const auto native =
      py::reinterpret_borrow<py::object>(dict_get_str(module_base_type->tp_dict, name));
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

PyObject *native_behind(PyObject *function) {
  for (std::size_t place = place_of(function); faces[place].function;
       place = (place + 1) % kFaceCapacity) {
    if (faces[place].function == function) {
      return faces[place].native;
    }
  }
  return nullptr;
}

void take_native_slots(PyTypeObject *type) {
  if (!face_count) {
    install_native_getattro(type);
    return;
  }
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

void adopt_module_class(const py::dict &attributes, py::handle sealed) {
  if (face_count) {
    throw std::runtime_error("a module class was adopted already");
  }
  if (!PyType_Check(sealed.ptr()) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(sealed.ptr()), module_base_type)) {
    throw py::type_error("expected modtree's Module as `sealed`");
  }
  auto *sealed_type = reinterpret_cast<PyTypeObject *>(sealed.ptr());
  const py::object getattribute = type_lookup(sealed_type, names.getattribute);
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
    if (is_name_of_type(name.ptr())) {
      if (PyObject_SetAttr(base.ptr(), name.ptr(), value.ptr()) < 0) {
        throw py::error_already_set();
      }
      continue;
    }
    if (const py::object native = native_method(name.ptr(), value.ptr())) {
      add_face(py::reinterpret_borrow<py::object>(value), native);
    }
    store(module_base_type, name.ptr(), value.ptr());
  }
  // Under the two-step slot CPython asks for it first.
  store(module_base_type, names.getattribute, getattribute.ptr());
  PyType_Modified(module_base_type);
  seal_adopted_class(module_base_type);
}

void rebind_global_hooks(const char *name, py::handle table) {
  PyObject **cell = table_of(name);
  if (!cell) {
    throw py::value_error(std::string("there is no table of hooks called ") + name);
  }
  if (!PyDict_Check(table.ptr())) {
    throw py::type_error(std::string(name) + " must be a dict, got '" +
                         Py_TYPE(table.ptr())->tp_name + "'");
  }
  // The old one is kept: a call may be at work on it.
  *cell = table.inc_ref().ptr();
}

void set_tracing_probe(std::size_t address, py::handle function) {
  tracing_state = reinterpret_cast<TracingState>(address);
  tracing_function = function.inc_ref().ptr();
}

int ask_tracing_function() {
  const auto state = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(tracing_function));
  return state ? !state.is_none() : -1;
}

}  // namespace modtree
