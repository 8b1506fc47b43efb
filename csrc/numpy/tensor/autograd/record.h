// SPDX-License-Identifier: BSD-3-Clause
// Puts operations on the graph.
#pragma once

#include "tensor/autograd/node.h"
#include "tensor/grad_mode.h"

namespace modtree {

// True if one of these arguments (tensors, or sequences of them) requires a gradient.
bool any_needs_grad(PyObject *const *args, Py_ssize_t count);

// Puts a call on the graph. `originals` are the arguments as the user gave them (those in a list
// count only in a tuple in its place), `values` as the forward function got them, both owned by the
// caller and positional ones first; `wrapped` is the result: a tensor or a tuple with tensors.
// `saved` is what the operation's recording function saved, null when it has none. 0, or -1 with
// an error set.
int record_call(OpObject *op, PyObject *const *originals, PyObject *const *values,
                Py_ssize_t n_positional, Py_ssize_t n_total, PyObject *kwnames, PyObject *wrapped,
                PyObject *saved = nullptr);

// Puts a Python function on the graph: function(*gradients of outputs) -> gradients of inputs.
// Those outputs that are in the tuple `changed` were written in place. New reference.
NodeObject *record_python(PyObject *name, PyObject *inputs, PyObject *outputs, PyObject *function,
                          PyObject *changed = nullptr);

// An operation that writes into a tensor: begin() before the values are lost, finish() after they
// have changed.
class InplaceRecord {
public:
  InplaceRecord() = default;
  InplaceRecord(const InplaceRecord &) = delete;
  InplaceRecord &operator=(const InplaceRecord &) = delete;
  ~InplaceRecord() { Py_XDECREF(reinterpret_cast<PyObject *>(node_)); }

  // `originals[0]` is the tensor. 0, or -1 with an error set.
  int begin(OpObject *op, TensorObject *self, PyObject *const *originals, PyObject *const *values,
            Py_ssize_t n_positional, Py_ssize_t n_total, PyObject *kwnames = nullptr);
  // Counts the change, and gives the tensor its new history when there is one to record.
  int finish(TensorObject *self);
  // finish() where the change has been counted already.
  int attach(TensorObject *self);

private:
  NodeObject *node_ = nullptr;
};

}  // namespace modtree
