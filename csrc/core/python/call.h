// SPDX-License-Identifier: BSD-3-Clause
// Calls of Python objects, for files that do without pybind11's own (`function(args...)`,
// `module_::import`), whose header is slow to compile. Results are owned, or null with a Python
// error set: nothing here throws.
#pragma once

#include <pybind11/pytypes.h>

#include <algorithm>

#include "python/native_section.h"

namespace modtree {

namespace py = pybind11;

// function(args...); the arguments are borrowed, as `PyObject *` or as handles.
template <class... Args>
py::object call(py::handle function, const Args &...args) {
  // One slot in front for PY_VECTORCALL_ARGUMENTS_OFFSET, so that bound methods need not copy.
  PyObject *stack[] = {nullptr, py::handle(args).ptr()...};
  constexpr std::size_t kCount = sizeof...(args) | PY_VECTORCALL_ARGUMENTS_OFFSET;
  const OutsideNativeSection outside;
  return py::reinterpret_steal<py::object>(
      PyObject_Vectorcall(function.ptr(), stack + 1, kCount, nullptr));
}

inline py::object get_attribute(py::handle object, const char *name) {
  return py::reinterpret_steal<py::object>(PyObject_GetAttrString(object.ptr(), name));
}

// object.name(args...)
template <class... Args>
py::object call_method(py::handle object, const char *name, const Args &...args) {
  const py::object method = get_attribute(object, name);
  return method ? call(method, args...) : py::object();
}

// While one lives, what is called may come back here, and so on without a Python frame in between
// that would bound the depth. From 3.12 on C calls have a limit of their own, which may be ten
// times that of Python's, and the stack may end before it: these have the limit of Python's.
class NestedCall {
public:
  NestedCall() : NestedCall("walking over modules", Py_GetRecursionLimit()) {}

  // In a function that calls itself for the items of what user code made: the depth has a limit of
  // its own, as the stack may end before a higher one of Python's.
  explicit NestedCall(const char *doing)
      : NestedCall(doing, std::min(Py_GetRecursionLimit(), kDeepestItems)) {}

  ~NestedCall() {
    if (entered_) {
      --depth();
    }
  }
  NestedCall(const NestedCall &) = delete;
  NestedCall &operator=(const NestedCall &) = delete;

  // False with an error set.
  bool entered() const { return entered_; }

private:
  static constexpr int kDeepestItems = 2000;

  NestedCall(const char *doing, int most) : entered_(depth() < most) {
    if (entered_) {
      ++depth();
    } else {
      PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded while %s", doing);
    }
  }

  static int &depth() {
    thread_local int value = 0;
    return value;
  }

  bool entered_;
};

// The next item of an iterator that may be one of ours, which goes on to another. Null at the end,
// or with an error set.
inline PyObject *next_of_nested(PyObject *iterator) {
  const NestedCall nested;
  if (!nested.entered() || Py_EnterRecursiveCall(" while walking over modules") != 0) {
    return nullptr;
  }
  PyObject *item = PyIter_Next(iterator);
  Py_LeaveRecursiveCall();
  return item;
}

// The attribute of a module, which is imported when it is not yet.
inline py::object import_attribute(const char *module, const char *name) {
  const auto imported = py::reinterpret_steal<py::object>(PyImport_ImportModule(module));
  return imported ? get_attribute(imported, name) : py::object();
}

// The arguments of a vectorcall as a tuple and a dict; *kwargs stays null where no keyword is
// given. -1 on error. User code may run, for names of a subclass of str.
inline int pack_arguments(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                          py::object *packed, py::object *kwargs) {
  *packed = py::reinterpret_steal<py::object>(PyTuple_New(nargs));
  if (!*packed) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    PyTuple_SET_ITEM(packed->ptr(), i, Py_NewRef(args[i]));
  }
  const Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (named == 0) {
    return 0;
  }
  *kwargs = py::reinterpret_steal<py::object>(PyDict_New());
  for (Py_ssize_t i = 0; *kwargs && i < named; ++i) {
    if (PyDict_SetItem(kwargs->ptr(), PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) {
      return -1;
    }
  }
  return *kwargs ? 0 : -1;
}

// True if a keyword of that ASCII name is among the names of a vectorcall (null: none).
inline bool has_keyword(PyObject *kwnames, const char *name) {
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), name) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace modtree
