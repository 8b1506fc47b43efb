// SPDX-License-Identifier: BSD-3-Clause
// Looking up the keys of a tree in the state dict that is loaded.
#pragma once

#include <cstring>

#include "family/family.h"
#include "module/object.h"
#include "python/prefetch.h"

namespace modtree {

// Looks keys up in a dict that mostly has them in the order of the questions: then the next entry
// is the answer, without hashing.
class KeyCursor {
public:
  explicit KeyCursor(PyObject *dict) : dict_(dict) {}

  // 1 and *value set, 0 when absent, -1 on error.
  int find(PyObject *key, py::object *value) {
    PyObject *next_key, *next_value;
    Py_ssize_t at = at_;
    if (dict_next(dict_, &at, &next_key, &next_value) &&
        (next_key == key || is_equal(next_key, key))) {
      at_ = at;
      ++found_;
      *value = py::reinterpret_borrow<py::object>(next_value);
      return 1;
    }
    next_value = dict_get(dict_, key);
    if (!next_value) {
      return PyErr_Occurred() ? -1 : 0;
    }
    ++found_;
    *value = py::reinterpret_borrow<py::object>(next_value);
    return 1;
  }

  // Brings near what will be asked of the next entries, if they are tensors of that library. Runs
  // no user code.
  void look_ahead(TensorFamily *family) const {
    if (PyObject *value = dict_value_ahead(dict_, at_, 12)) {
      prefetch(value);
    }
    if (PyObject *value = dict_value_ahead(dict_, at_, 6)) {
      family->prefetch(value);
    }
  }

  // Was every entry found, provided that no key was asked for twice?
  bool complete() const { return found_ == PyDict_GET_SIZE(dict_); }

private:
  static bool is_equal(PyObject *a, PyObject *b) {
    return PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) &&
           PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) &&
           PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
           std::memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b),
                       static_cast<std::size_t>(PyUnicode_GET_LENGTH(a)) *
                           static_cast<std::size_t>(PyUnicode_KIND(a))) == 0;
  }

  PyObject *dict_;
  Py_ssize_t at_ = 0;
  Py_ssize_t found_ = 0;
};

}  // namespace modtree
