// SPDX-License-Identifier: BSD-3-Clause
#include "python/interned.h"

namespace modtree {

Names names;

namespace {

PyObject *intern(const char *text) {
  PyObject *name = PyUnicode_InternFromString(text);
  if (!name) {
    throw pybind11::error_already_set();
  }
  // Names serve as dict keys looked up by known hash.
  if (PyObject_Hash(name) == -1) {
    throw pybind11::error_already_set();
  }
  return name;
}

}  // namespace

void intern_names() {
#define MODTREE_INTERN(member, text) names.member = intern(text);
  MODTREE_NAMES(MODTREE_INTERN)
#undef MODTREE_INTERN
  names.empty = intern("");
  names.dot = intern(".");
}

}  // namespace modtree
