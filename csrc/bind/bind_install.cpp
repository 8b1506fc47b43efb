// SPDX-License-Identifier: BSD-3-Clause
#include "bind/parts.h"

#include <cstring>
#include <string>
#include <vector>

#include "python/installed.h"
#include "tensor/numpy_family.h"
#include "tensor/object.h"

namespace modtree {

namespace {

struct Given {
  const InstalledCell *entry;
  py::object value;

  bool is_for(PyObject *const &cell) const { return entry->cell == &cell; }
};

std::vector<Given> look_up(const py::dict &objects) {
  std::vector<Given> given;
  for (const auto &[key, value] : objects) {
    const char *name = PyUnicode_AsUTF8(key.ptr());
    if (!name) {
      throw py::error_already_set();
    }
    const InstalledCell *entry = installed_cell(name);
    if (!entry) {
      throw py::type_error("_install: native code uses nothing of the name '" + std::string(name) +
                           "'; csrc/core/python/installed.h lists what it uses");
    }
    given.push_back({entry, py::reinterpret_borrow<py::object>(value)});
  }
  return given;
}

[[noreturn]] void refuse(const Given &given, const std::string &expected) {
  PyErr_Format(PyExc_TypeError, "_install: '%s' must be %s, got %.200s: %R", given.entry->name,
               expected.c_str(), Py_TYPE(given.value.ptr())->tp_name, given.value.ptr());
  throw py::error_already_set();
}

// Native code writes into objects of these classes as into those of the base.
PyTypeObject *base_of(const Given &given) {
  if (given.is_for(installed.Tensor) || given.is_for(installed.Parameter)) {
    return tensor_base_type;
  }
  if (given.is_for(installed.StateDict) || given.is_for(installed.PickledTable)) {
    return &PyODict_Type;
  }
  return given.is_for(installed.Size) ? &PyTuple_Type : &PyBaseObject_Type;
}

void check_class(const Given &given) {
  PyTypeObject *base = base_of(given);
  if (!PyType_Check(given.value.ptr()) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(given.value.ptr()), base)) {
    const bool any = base == &PyBaseObject_Type;
    refuse(given, any ? "a class" : std::string("a subclass of ") + base->tp_name);
  }
}

// Empty where it has no such attribute.
py::object attribute_of(const Given &given, const char *name) {
  py::object found = get_attribute(given.value, name);
  if (!found) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
      throw py::error_already_set();
    }
    PyErr_Clear();
  }
  return found;
}

void check_device(const Given &given, const char *expected) {
  const py::object type = attribute_of(given, "type");
  if (!type || !PyUnicode_Check(type.ptr()) ||
      PyUnicode_CompareWithASCIIString(type.ptr(), expected) != 0) {
    refuse(given, std::string("the device whose type is '") + expected + "'");
  }
}

// What is found in the cell once everything of this call is installed.
PyObject *object_for(PyObject *const &cell, const std::vector<Given> &all) {
  PyObject *found = cell;
  for (const Given &other : all) {
    found = other.is_for(cell) ? other.value.ptr() : found;
  }
  return found;
}

void check_family(const Given &given, const std::vector<Given> &all) {
  const auto tensor = py::reinterpret_borrow<py::object>(object_for(installed.Tensor, all));
  const auto parameter = py::reinterpret_borrow<py::object>(object_for(installed.Parameter, all));
  if (!tensor || !parameter) {
    PyErr_Format(PyExc_RuntimeError,
                 "_install: '%s' needs '%s', which is not installed yet; install both in one call, "
                 "or the class before",
                 given.entry->name, tensor ? "Parameter" : "Tensor");
    throw py::error_already_set();
  }
  if (!attribute_of(given, "tensor_type").is(tensor) ||
      !attribute_of(given, "parameter_type").is(parameter)) {
    refuse(given, "a family whose tensor_type is Tensor and whose parameter_type is Parameter");
  }
}

void check_object(const Given &given, const std::vector<Given> &all) {
  if (given.is_for(installed.numpy_family)) {
    check_family(given, all);
  } else {
    check_device(given, given.is_for(installed.cpu_device) ? "cpu" : "meta");
  }
}

void check(const Given &given, const std::vector<Given> &all) {
  switch (given.entry->kind) {
    case InstalledKind::type:
      return check_class(given);
    case InstalledKind::object:
      return check_object(given, all);
    case InstalledKind::function:
      if (!PyCallable_Check(given.value.ptr())) {
        refuse(given, "callable");
      }
  }
}

// What follows from a class, beside that native code can find it.
void adopt_class(const Given &given) {
  auto *type = reinterpret_cast<PyTypeObject *>(given.value.ptr());
  if (given.is_for(installed.Tensor)) {
    adopt_tensor_class(type);
  } else if (given.is_for(installed.Size)) {
    adopt_size_class(type);
  } else if (given.is_for(installed.Parameter)) {
    adopt_parameter_class(type);
  }
}

}  // namespace

void install(const py::dict &objects) {
  const std::vector<Given> all = look_up(objects);
  for (const Given &given : all) {
    check(given, all);
  }
  for (const Given &given : all) {
    *given.entry->cell = py::object(given.value).release().ptr();
    adopt_class(given);
  }
  // The family takes the classes that are installed.
  for (const Given &given : all) {
    if (given.is_for(installed.numpy_family)) {
      adopt_numpy_family(given.value);
    }
  }
}

}  // namespace modtree
