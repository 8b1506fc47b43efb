// SPDX-License-Identifier: BSD-3-Clause
// What native code that Python code calls knows of the native code that has called that. It is kept
// in a context variable, as each thread and each greenlet has its own. A thread's storage would be
// shared by greenlets, which end in any order. While one is switched away from, others use the
// place of its C stack, so nothing that others can find may be there.
#pragma once

#include <pybind11/pytypes.h>

#include <new>

#include "python/once.h"

namespace modtree {

namespace py = pybind11;

// Sets a context variable while it lives. CPython borrows the context's variables while it makes
// the changed ones: code that the collector ran then, and that changes one itself, would free them.
class ContextScope {
public:
  // With an error set where it could not be entered; either argument may be null, with one.
  ContextScope(PyObject *variable, PyObject *value) : variable_(variable) {
    const CollectorPause pause;
    token_ = variable && value ? PyContextVar_Set(variable, value) : nullptr;
  }
  ContextScope(const ContextScope &) = delete;
  ContextScope &operator=(const ContextScope &) = delete;
  ~ContextScope() {
    if (token_) {
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      {
        const CollectorPause pause;
        if (PyContextVar_Reset(variable_, token_) < 0) {
          PyErr_Clear();
        }
      }
      Py_DECREF(token_);
      PyErr_Restore(type, value, trace);
    }
  }

  bool entered() const { return token_ != nullptr; }

private:
  PyObject *const variable_;
  PyObject *token_;
};

// The value in this context: null, without an error, where there is none.
inline py::object context_value(PyObject *variable) {
  PyObject *value = nullptr;
  if (variable && PyContextVar_Get(variable, nullptr, &value) < 0) {
    PyErr_Clear();
  }
  return py::reinterpret_steal<py::object>(value);
}

// The object of a class that is at work in this context. A context that was copied may outlive the
// work, so what is kept there is a link that is cut at the end. The object is on the heap.
template <class T>
class AtWork {
public:
  explicit AtWork(T *object) : link_(new_link(object)), scope_(variable(), link_.ptr()) {}
  AtWork(const AtWork &) = delete;
  AtWork &operator=(const AtWork &) = delete;
  ~AtWork() {
    if (link_) {
      *target(link_.ptr()) = nullptr;
    }
  }

  // False with an error set.
  bool entered() const { return scope_.entered(); }

  // The one that began last in this context, or null.
  static T *current() {
    const py::object link = context_value(variable_);
    return link && PyCapsule_IsValid(link.ptr(), kName) ? *target(link.ptr()) : nullptr;
  }

private:
  static constexpr const char *kName = "modtree.at_work";

  static PyObject *variable() {
    return fill_once(&variable_, [] { return PyContextVar_New(kName, nullptr); });
  }

  static T **target(PyObject *link) { return static_cast<T **>(PyCapsule_GetPointer(link, kName)); }

  static py::object new_link(T *object) {
    auto *pointer = new T *(object);
    PyObject *link = PyCapsule_New(static_cast<void *>(pointer), kName,
                                   [](PyObject *self) { delete target(self); });
    if (!link) {
      delete pointer;
    }
    return py::reinterpret_steal<py::object>(link);
  }

  static inline PyObject *variable_ = nullptr;

  const py::object link_;
  const ContextScope scope_;
};

}  // namespace modtree
