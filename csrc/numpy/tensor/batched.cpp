// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/batched.h"

#include <vector>

#include "python/slot_guard.h"

namespace modtree {

int batching_depth = 0;

namespace {

// function(op, extra..., *args), with keyword values behind the positional ones.
PyObject *call_with_op(PyObject *function, OpObject *op, PyObject *self, PyObject *const *args,
                       Py_ssize_t nargs, PyObject *kwnames) {
  if (need_installed(function) == nullptr) {
    return nullptr;
  }
  return slot_guard(static_cast<PyObject *>(nullptr), [&]() -> PyObject * {
    const Py_ssize_t count = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
    std::vector<PyObject *> values{reinterpret_cast<PyObject *>(op)};
    if (self != nullptr) {
      values.push_back(self);
    }
    const auto in_front = static_cast<Py_ssize_t>(values.size());
    values.insert(values.end(), args, args + count);
    return PyObject_Vectorcall(function, values.data(), static_cast<size_t>(nargs + in_front),
                               kwnames);
  });
}

}  // namespace

bool find_batched(PyObject *const *args, Py_ssize_t count, int depth) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (is_batched(args[i])) {
      return true;
    }
    const bool is_sequence = PyTuple_CheckExact(args[i]) || PyList_CheckExact(args[i]);
    if (is_sequence && depth > 0 &&
        find_batched(PySequence_Fast_ITEMS(args[i]), Py_SIZE(args[i]), depth - 1)) {
      return true;
    }
  }
  return false;
}

PyObject *call_batched(OpObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  return call_with_op(installed.batched_call, op, nullptr, args, nargs, kwnames);
}

int call_batched_inplace(OpObject *op, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames) {
  PyObject *done = call_with_op(installed.batched_inplace, op, self, args, nargs, kwnames);
  Py_XDECREF(done);
  return done == nullptr ? -1 : 0;
}

int refuse_batched_write(const char *what) {
  PyErr_Format(PyExc_RuntimeError,
               "vmap: %s(self, ...) is not possible because self is the same for the whole batch "
               "and what is written into it is not: use an operation that makes a new tensor, or "
               "write into a clone of a tensor that has the batch",
               what);
  return -1;
}

}  // namespace modtree
