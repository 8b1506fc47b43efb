// SPDX-License-Identifier: BSD-3-Clause
// What to do where making an object may run user code that changes what was looked at before:
// before CPython 3.12 every allocation of a container may run the collector, and with it finalizers
// and callbacks.
#pragma once

#include <pybind11/pytypes.h>

#include <algorithm>

#include "python/shared_cell.h"

namespace modtree {

// Fills an empty cell with what make() gives: a new reference, or null with an error set. Returns
// what the cell then holds; borrowed, null on error. What user code has put there in the meantime
// stays.
template <class Make>
PyObject *fill_once(PyObject **cell, Make make) {
  if (!*cell) {
    PyObject *fresh = make();
    if (!fresh) {
      return nullptr;
    }
    if (*cell) {
      Py_DECREF(fresh);
    } else {
      exchange_cell(cell, fresh);
    }
  }
  return *cell;
}

// The items of a list as a new tuple, null on error. CPython's own ways count the items, make the
// tuple and then read a list that may be a shorter one by then. These are the items after the tuple
// was made, at most as many as before.
inline PyObject *tuple_of_list(PyObject *list) {
  const Py_ssize_t room = PyList_GET_SIZE(list);
  PyObject *tuple = PyTuple_New(room);
  if (!tuple) {
    return nullptr;
  }
  const Py_ssize_t count = std::min(room, PyList_GET_SIZE(list));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(PyList_GET_ITEM(list, i)));
  }
  return count == room || _PyTuple_Resize(&tuple, count) == 0 ? tuple : nullptr;
}

// What PySequence_Tuple gives, of a list too. It is that one kind that CPython does not iterate.
inline PyObject *tuple_of_items(PyObject *items) {
  return PyList_CheckExact(items) ? tuple_of_list(items) : PySequence_Tuple(items);
}

// While one lives, allocations do not run the collector. For calls of CPython that cannot bear it.
class CollectorPause {
public:
  CollectorPause() : was_enabled_(PyGC_Disable() != 0) {}
  CollectorPause(const CollectorPause &) = delete;
  CollectorPause &operator=(const CollectorPause &) = delete;
  ~CollectorPause() {
    if (was_enabled_) {
      PyGC_Enable();
    }
  }

private:
  const bool was_enabled_;
};

}  // namespace modtree
