// SPDX-License-Identifier: BSD-3-Clause
#include "module/walk/seen.h"

#include <utility>

namespace modtree {

PyObject *SeenSet::as_set() {
  if (set_) {
    return set_;
  }
  PyObject *set = PySet_New(nullptr);
  if (!set) {
    return nullptr;
  }
  for (PyObject *member : owned_) {
    // Members so far are compared by identity: hashing them runs no user code.
    if (PySet_Add(set, member) < 0) {
      Py_DECREF(set);
      return nullptr;
    }
  }
  set_ = set;
  return set_;
}

int SeenSet::visit_set(PyObject *object, bool remember) {
  PyObject *set = as_set();
  if (!set) {
    return -1;
  }
  Py_INCREF(set);
  int result = PySequence_Contains(set, object);
  if (result == 0 && remember) {
    if (PySet_Check(set)) {
      result = PySet_Add(set, object);
    } else {
      PyObject *added = PyObject_CallMethod(set, "add", "O", object);
      result = added ? 0 : -1;
      Py_XDECREF(added);
    }
  }
  Py_DECREF(set);
  return result < 0 ? -1 : result == 0;
}

void SeenSet::fill_table() {
  for (; in_table_ < owned_.size(); ++in_table_) {
    pointers_.insert(owned_[in_table_]);
  }
}

void SeenSet::clear() {
  Py_CLEAR(set_);
  if (in_table_) {
    PointerSet pointers;
    std::swap(pointers, pointers_);
    in_table_ = 0;
  }
  owned_.clear();
}

int SeenSet::traverse(visitproc visit, void *arg) const {
  Py_VISIT(set_);
  for (PyObject *member : owned_) {
    Py_VISIT(member);
  }
  return 0;
}

}  // namespace modtree
