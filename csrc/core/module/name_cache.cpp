// SPDX-License-Identifier: BSD-3-Clause
#include "module/name_cache.h"

#include <cstring>

#include "python/interned.h"

namespace modtree {

namespace py = pybind11;

namespace {

bool is_plain_ascii(PyObject *text) { return PyUnicode_IS_COMPACT_ASCII(text); }

// left + middle + right + tail for ASCII parts; `middle` and `tail` are 0 or one character.
PyObject *concat_ascii(PyObject *left, char middle, PyObject *right, char tail) {
  const Py_ssize_t left_size = PyUnicode_GET_LENGTH(left);
  const Py_ssize_t right_size = PyUnicode_GET_LENGTH(right);
  PyObject *name = PyUnicode_New(left_size + right_size + (middle != 0) + (tail != 0), 127);
  if (!name) {
    return nullptr;
  }
  char *out = reinterpret_cast<char *>(PyUnicode_1BYTE_DATA(name));
  std::memcpy(out, PyUnicode_1BYTE_DATA(left), static_cast<std::size_t>(left_size));
  out += left_size;
  if (middle) {
    *out++ = middle;
  }
  std::memcpy(out, PyUnicode_1BYTE_DATA(right), static_cast<std::size_t>(right_size));
  out += right_size;
  if (tail) {
    *out = tail;
  }
  return name;
}

int check_str(PyObject *part) {
  if (PyUnicode_Check(part)) {
    return 0;
  }
  PyErr_Format(PyExc_TypeError, "names in a module's registries must be str, got %.200s: %R",
               Py_TYPE(part)->tp_name, part);
  return -1;
}

bool is_exact(PyObject *part) { return PyUnicode_CheckExact(part); }

PyObject *add(PyObject *left, PyObject *right) {
  return left && right ? PyNumber_Add(left, right) : nullptr;
}

// left[:-1]
PyObject *without_last(PyObject *left) {
  const auto stop = py::reinterpret_steal<py::object>(PyLong_FromLong(-1));
  const auto slice =
      py::reinterpret_steal<py::object>(stop ? PySlice_New(nullptr, stop.ptr(), nullptr) : nullptr);
  return slice ? PyObject_GetItem(left, slice.ptr()) : nullptr;
}

// The name as Python code puts it together from parts of which one is of a class of str.
PyObject *make_by_operators(NameForm form, PyObject *left_part, PyObject *right_part) {
  const auto left = py::reinterpret_borrow<py::object>(left_part);
  const auto right = py::reinterpret_borrow<py::object>(right_part);
  switch (form) {
    case NameForm::dotted: {
      const int has_left = PyObject_IsTrue(left.ptr());
      const auto owner = py::reinterpret_steal<py::object>(
          has_left < 0 ? nullptr : add(left.ptr(), has_left ? names.dot : names.empty));
      return add(owner.ptr(), right.ptr());
    }
    case NameForm::prefix: {
      const auto name = py::reinterpret_steal<py::object>(add(left.ptr(), right.ptr()));
      return add(name.ptr(), names.dot);
    }
    case NameForm::chopped:
      return without_last(left.ptr());
    case NameForm::joined:
      break;
  }
  return add(left.ptr(), right.ptr());
}

}  // namespace

PyObject *make_name(NameForm form, PyObject *left, PyObject *right) {
  if (check_str(left) < 0 || (form != NameForm::chopped && check_str(right) < 0)) {
    return nullptr;
  }
  if (!is_exact(left) || (form != NameForm::chopped && !is_exact(right))) {
    PyObject *name = make_by_operators(form, left, right);
    if (name && check_str(name) < 0) {
      Py_CLEAR(name);
    }
    return name;
  }
  if (form == NameForm::chopped) {
    const Py_ssize_t size = PyUnicode_GET_LENGTH(left);
    return PyUnicode_Substring(left, 0, size > 0 ? size - 1 : 0);
  }
  if (form != NameForm::prefix && PyUnicode_GET_LENGTH(left) == 0) {
    return Py_NewRef(right);
  }
  const char middle = form == NameForm::dotted ? '.' : '\0';
  const char tail = form == NameForm::prefix ? '.' : '\0';
  if (is_plain_ascii(left) && is_plain_ascii(right)) {
    return concat_ascii(left, middle, right, tail);
  }
  switch (form) {
    case NameForm::dotted:
      return PyUnicode_FromFormat("%U.%U", left, right);
    case NameForm::prefix:
      return PyUnicode_FromFormat("%U%U.", left, right);
    default:
      return PyUnicode_Concat(left, right);
  }
}

PyObject *NameCache::make(std::size_t position, PyObject *left, PyObject *right) {
  PyObject *full = make_name(form_, left, right);
  if (!full || position >= kMaxEntries || !is_exact(left) || !is_exact(right)) {
    return full;
  }
  if (position >= entries_.size()) {
    entries_.resize(position + 1);
  }
  Entry &entry = entries_[position];
  const Entry old = entry;
  entry = Entry{Py_NewRef(left), Py_NewRef(right), Py_NewRef(full)};
  // Exact strs: their end runs no user code.
  Py_XDECREF(old.left);
  Py_XDECREF(old.right);
  Py_XDECREF(old.full);
  return full;
}

NameCaches &name_caches() {
  // Never destroyed: its strings may outlive the interpreter's last use of them.
  static NameCaches *caches = new NameCaches();
  return *caches;
}

}  // namespace modtree
