// SPDX-License-Identifier: BSD-3-Clause
// Calls of functions with tensors of another library, which run in that library.
#include "family/family.h"
#include "python/call.h"
#include "python/installed.h"
#include "python/once.h"
#include "tensor/override.h"

namespace modtree {

namespace {

// Whose tensors are among the arguments of a call.
class Libraries {
public:
  // False with an error set.
  bool add_all(PyObject *const *args, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (PyTuple_CheckExact(args[i]) || PyList_CheckExact(args[i])) {
        // The look at a class may run code that changes a list.
        const auto items = py::reinterpret_steal<py::object>(tuple_of_items(args[i]));
        if (!items) {
          return false;
        }
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(items.ptr()); ++j) {
          if (!add(PyTuple_GET_ITEM(items.ptr(), j))) {
            return false;
          }
        }
      } else if (!add(args[i])) {
        return false;
      }
    }
    return true;
  }

  // That of the first tensor that is not modtree's; null where there is none.
  TensorFamily *foreign() const { return foreign_; }
  bool are_several() const { return several_; }

private:
  bool add(PyObject *arg) {
    if (is_tensor(arg)) {
      has_own_ = true;
      several_ = several_ || foreign_ != nullptr;
      return true;
    }
    const int is_foreign = never_overrides(arg) ? 0 : class_is_foreign(Py_TYPE(arg));
    if (is_foreign <= 0) {
      return is_foreign == 0;
    }
    TensorFamily *family = family_of_type(Py_TYPE(arg));
    if (family == nullptr) {
      return PyErr_Occurred() == nullptr;
    }
    several_ = several_ || has_own_ || (foreign_ != nullptr && foreign_ != family);
    foreign_ = foreign_ == nullptr ? family : foreign_;
    return true;
  }

  TensorFamily *foreign_ = nullptr;
  bool has_own_ = false;
  bool several_ = false;
};

// The library's function; NotImplemented where modtree's own is to say what is wrong. Null on
// error.
py::object find_function(PyObject *func, PyObject *name, const Libraries &libraries,
                         PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  const py::object &family = libraries.foreign()->object;
  if (!libraries.are_several()) {
    return call_installed(installed.function_elsewhere, name, family);
  }
  py::object given, keywords;
  if (pack_arguments(args, nargs, kwnames, &given, &keywords) < 0) {
    return {};
  }
  return call_installed(installed.function_elsewhere, name, family, func, given,
                        keywords ? keywords : py::none());
}

}  // namespace

bool call_elsewhere(PyObject *func, PyObject *name, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames, PyObject **result) {
  *result = nullptr;
  Libraries libraries;
  if (!libraries.add_all(args, argument_count(nargs, kwnames))) {
    return true;
  }
  if (libraries.foreign() == nullptr) {
    return false;
  }
  const py::object function = find_function(func, name, libraries, args, nargs, kwnames);
  if (function && function.ptr() == Py_NotImplemented) {
    return false;
  }
  if (function) {
    *result = PyObject_Vectorcall(function.ptr(), args, static_cast<size_t>(nargs), kwnames);
  }
  return true;
}

}  // namespace modtree
