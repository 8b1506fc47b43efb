// SPDX-License-Identifier: BSD-3-Clause
#include "module/attributes/name_facts.h"

namespace modtree {

MODTREE_PER_THREAD NameFacts name_facts;

namespace {

// True if an entry of a registry may have this name.
bool is_own_name(PyObject *name) {
  const Py_ssize_t length = PyUnicode_GET_LENGTH(name);
  return length > 0 && PyUnicode_FindChar(name, '.', 0, length, 1) == -1;
}

}  // namespace

void NameFacts::learn(PyTypeObject *type, TypeVersion version, PyObject *name) {
  if (version == 0 || !PyUnicode_CHECK_INTERNED(name) || !has_hash(name)) {
    return;
  }
  const SpecialName *special = find_special_name(name);
  if (special ? special->slot < 0 : !is_own_name(name)) {
    return;
  }
  if (hands_writes_on(type)) {
    return;
  }
  Entry &entry = entries_[index(version, name)];
  PyObject *old = entry.name;
  entry = Entry{Py_NewRef(name), version, special ? special->slot : kPlain};
  Py_XDECREF(old);
}

}  // namespace modtree
