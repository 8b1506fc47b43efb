// SPDX-License-Identifier: BSD-3-Clause
// Items of lists and tuples of user code, which other threads may change.
#pragma once

#include <pybind11/pytypes.h>

#include "python/native_section.h"

namespace modtree {

// A new reference that somebody else owns too, as a borrowed one: with the GIL until user code
// runs, without it until the entered function ends.
inline PyObject *held_here(PyObject *owned) {
#ifdef Py_GIL_DISABLED
  return borrow_owned(owned);
#else
  Py_DECREF(owned);
  return owned;
#endif
}

// An item of a list or tuple (or of a subclass), borrowed; null without an error where it has
// become shorter.
inline PyObject *sequence_item(PyObject *sequence, Py_ssize_t index) {
  if (PyTuple_Check(sequence)) {
    return index < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, index) : nullptr;
  }
#ifdef Py_GIL_DISABLED
  NativeSection::let_others_in();
  PyObject *item = PyList_GetItemRef(sequence, index);
  if (!item) {
    PyErr_Clear();
  }
  NativeSection::let_others_in();
  return borrow_owned(item);
#else
  return index < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, index) : nullptr;
#endif
}

// While one lives, making objects does not run the collector, and so no user code: for loops with
// borrowed references that ask for iterators. Without the GIL it never runs there.
class WithoutCollector {
public:
#ifdef Py_GIL_DISABLED
  WithoutCollector() {}
  ~WithoutCollector() {}
#else
  WithoutCollector() : was_on_(PyGC_Disable() != 0) {}
  ~WithoutCollector() {
    if (was_on_) {
      PyGC_Enable();
    }
  }

private:
  bool was_on_;

public:
#endif
  WithoutCollector(const WithoutCollector &) = delete;
  WithoutCollector &operator=(const WithoutCollector &) = delete;
};

}  // namespace modtree
