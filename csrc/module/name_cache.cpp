// SPDX-License-Identifier: BSD-3-Clause
#include "module/name_cache.h"

#include <cstring>

namespace modtree {

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

}  // namespace

PyObject *make_name(NameForm form, PyObject *left, PyObject *right) {
  if (check_str(left) < 0 || (form != NameForm::chopped && check_str(right) < 0)) {
    return nullptr;
  }
  if (form == NameForm::chopped) {
    const Py_ssize_t size = PyUnicode_GET_LENGTH(left);
    return PyUnicode_Substring(left, 0, size > 0 ? size - 1 : 0);
  }
  if (form == NameForm::dotted && PyUnicode_GET_LENGTH(left) == 0) {
    return Py_NewRef(right);
  }
  if (form == NameForm::joined && PyUnicode_GET_LENGTH(left) == 0) {
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
  if (!full || position >= kMaxEntries) {
    return full;
  }
  if (position >= entries_.size()) {
    entries_.resize(position + 1);
  }
  Entry &entry = entries_[position];
  const Entry old = entry;
  entry = Entry{Py_NewRef(left), Py_XNewRef(right), Py_NewRef(full)};
  // Strings: their end runs no user code (a str subclass as a registry key could, so `entry` is not
  // used after this).
  Py_XDECREF(old.left);
  Py_XDECREF(old.right);
  Py_XDECREF(old.full);
  return full;
}

void NameCache::clear() {
  std::vector<Entry> old;
  old.swap(entries_);
  for (const Entry &entry : old) {
    Py_XDECREF(entry.left);
    Py_XDECREF(entry.right);
    Py_XDECREF(entry.full);
  }
}

NameCaches &name_caches() {
  // Never destroyed: its strings may outlive the interpreter's last use of them.
  static NameCaches *caches = new NameCaches();
  return *caches;
}

}  // namespace modtree
