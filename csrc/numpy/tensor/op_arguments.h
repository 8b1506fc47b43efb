// SPDX-License-Identifier: BSD-3-Clause
// The arguments of one call of an Op: unwrapped, and brought to one dtype.
#pragma once

#include <cstdint>

#include "python/native_section.h"
#include "tensor/array_view.h"
#include "tensor/op.h"

namespace modtree {

// The arguments of one call with arrays in place of tensors.
class Arguments {
public:
  Arguments() = default;
  Arguments(const Arguments &) = delete;
  Arguments &operator=(const Arguments &) = delete;
  ~Arguments() {
    for (Py_ssize_t i = 0; i < total; ++i) {
      Py_DECREF(slot(i));
    }
    for (Py_ssize_t i = 0; owned_originals_ != 0; ++i, owned_originals_ >>= 1) {
      if (owned_originals_ & 1u) {
        Py_DECREF(copied_originals_[i]);
      }
    }
  }

  // In each caller: it is a good part of what a small operation costs.
  [[gnu::always_inline]] bool load(OpObject *op, PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames) {
    Py_ssize_t count = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
    if (count > kMaxArgs) {
      PyErr_Format(PyExc_TypeError, "%U() takes at most %zd arguments", op->name, kMaxArgs);
      return false;
    }
    positional = nargs;
    originals_ = args;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject *value =
          // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): all `count` of them are set
          PyList_CheckExact(args[i]) ? convert_list(args, count, i) : convert(args[i]);
      if (value == nullptr) {
        return false;
      }
      slots_[1 + total++] = value;
    }
    if (any_meta && any_cpu) {
      PyErr_Format(PyExc_RuntimeError,
                   "%U: Expected all tensors to be on the same device, but found at least two "
                   "devices, cpu and meta!",
                   op->name);
      return false;
    }
    return !any_array_ || take_views();
  }

  // The arguments as the caller gave them, with a tuple in place of each list that has tensors:
  // user code may change the list at any time.
  PyObject *const *originals() const { return originals_; }
  PyObject *&slot(Py_ssize_t i) { return slots_[1 + i]; }
  PyObject *const *values() const { return slots_ + 1; }
  void replace(Py_ssize_t i, PyObject *fresh) {
    PyObject *old = slot(i);
    slot(i) = fresh;
    Py_DECREF(old);
  }
  PyObject *call(PyObject *function, PyObject *kwnames) {
    const OutsideNativeSection outside;
    return PyObject_Vectorcall(function, slots_ + 1,
                               static_cast<size_t>(positional) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               kwnames);
  }

  Py_ssize_t total = 0;
  Py_ssize_t positional = 0;
  bool any_meta = false;
  bool any_cpu = false;  // a cpu tensor with dimensions
  bool any_needs_grad = false;

private:
  PyObject *unwrap(TensorObject *tensor) {
    any_meta |= tensor->is_meta;
    any_needs_grad |= needs_grad(tensor);
    any_cpu |= !tensor->is_meta && PyArray_NDIM(tensor->array) > 0;
    Py_INCREF(tensor->array);
    return as_object(tensor->array);
  }

  PyObject *convert(PyObject *arg) {
    if (is_tensor(arg)) {
      return unwrap(as_tensor(arg));
    }
    if (PyTuple_CheckExact(arg)) {
      Py_ssize_t n = PyTuple_GET_SIZE(arg);
      bool found = false;
      for (Py_ssize_t i = 0; i < n && !found; ++i) {
        found = is_tensor(PyTuple_GET_ITEM(arg, i));
        any_array_ |= is_ndarray(PyTuple_GET_ITEM(arg, i));
      }
      if (found) {
        PyObject *copy = PyTuple_New(n);
        for (Py_ssize_t i = 0; copy != nullptr && i < n; ++i) {
          PyTuple_SET_ITEM(copy, i, unwrap_item(PyTuple_GET_ITEM(arg, i)));
        }
        return copy;
      }
    }
    any_array_ |= is_ndarray(arg);
    Py_INCREF(arg);
    return arg;
  }

  PyObject *unwrap_item(PyObject *item) {
    if (is_tensor(item)) {
      return unwrap(as_tensor(item));
    }
    any_array_ |= is_ndarray(item);
    return Py_NewRef(item);
  }

  // A list of our own: what an operation works on, or saves, is not the caller's.
  PyObject *convert_list(PyObject *const *args, Py_ssize_t count, Py_ssize_t place);

  // Puts views in place of the caller's ndarrays: the graph may keep them, and a result be one of
  // them. False on error.
  bool take_views();

  PyObject *slots_[kMaxArgs + 1];
  PyObject *const *originals_ = nullptr;
  PyObject *copied_originals_[kMaxArgs];  // filled with the first list
  bool any_array_ = false;                // an ndarray of the caller
  std::uint32_t owned_originals_ = 0;     // bits of the tuples among them
  static_assert(kMaxArgs <= 32, "each argument has a bit");
};

// Casts the operands to the dtype in which they meet; *num is that dtype, -1 when there is none.
bool promote(OpObject *op, Arguments &args, int *num);

// False with an error set: an integer division by zero.
bool divisor_is_valid(OpObject *op, Arguments &args, int num);

}  // namespace modtree
