// SPDX-License-Identifier: BSD-3-Clause
// Which node a tensor comes from, and how that changes when it or its base is written in place.
#pragma once

#include "tensor/autograd/node.h"

namespace modtree {

// What few tensors have: a node where their gradient is added up, hooks.
struct LeafExtra {
  NodeObject *accumulator = nullptr;          // borrowed: the node owns the tensor
  PyObject *hooks = nullptr;                  // owned dict: hook(grad)
  PyObject *post_accumulate_hooks = nullptr;  // owned dict: hook(tensor)
  const void *adding = nullptr;  // the thread that adds to its gradient, by GradientLock
};

// While one lives, no other thread adds to the gradient of the leaf, which has an accumulating
// node: NumPy lets other threads run while it adds up large arrays.
class GradientLock {
public:
  explicit GradientLock(TensorObject *leaf);
  GradientLock(const GradientLock &) = delete;
  GradientLock &operator=(const GradientLock &) = delete;
  ~GradientLock();

private:
  LeafExtra *extra_;  // null: the thread has it already
};

// The node that made it: a new reference, null for a leaf. *error: it could not be found out, an
// error is set.
NodeObject *current_grad_fn(TensorObject *tensor, bool *error);

// Where gradients of a tensor that needs them go; to no node for a view made under no_grad. 0, or
// -1 with an error set.
int gradient_edge(TensorObject *tensor, Edge *edge);

// The tensor is output `nr` of the node from now on.
void set_history(TensorObject *tensor, NodeObject *node, std::uint32_t nr);

// The tensor was written in place by what `node` represents, whose edges for argument 0 lead to its
// old history.
int rebase_history(TensorObject *tensor, NodeObject *node, std::uint32_t nr = 0);

// Makes the tensor a leaf (detach_).
int drop_history(TensorObject *tensor);

// The tensor is a view, made now, of another one (or of that one's base).
void set_base(TensorObject *view, TensorObject *base, ViewOrigin origin);

// True if a change in place of this view, or of its base, would bypass the node that made it.
inline bool refuses_inplace(TensorObject *tensor) {
  return tensor->view_origin == ViewOrigin::of_function ||
         tensor->view_origin == ViewOrigin::one_of_many;
}
// "Output 0 of UnbindBackward0 is a view and <event>. ..."
void raise_refused_inplace(TensorObject *view, const char *event);

// Keeps the gradient of a tensor that is not a leaf.
int retain_grad(TensorObject *tensor);

// The table of hooks of the tensor's gradient; for a tensor that is not a leaf it is on the node.
// New reference.
PyObject *tensor_hooks(TensorObject *tensor);
PyObject *post_accumulate_hooks(TensorObject *tensor);

}  // namespace modtree
