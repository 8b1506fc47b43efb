// SPDX-License-Identifier: BSD-3-Clause
// What users registered, run during a backward pass; and where the gradients of leaves end.
#pragma once

#include "tensor/autograd/derivative.h"

namespace modtree {

// All return 0, or -1 with an error set.

// Hooks of the tensors that the node made, or of its leaf; they may replace gradients. Keeps those
// that tensors retain.
int run_tensor_hooks(NodeObject *node, Gradients &outputs, bool on_tensors);
// hook(grad_outputs)
int run_pre_hooks(NodeObject *node, Gradients &outputs, bool on_tensors);
// hook(grad_inputs, grad_outputs)
int run_post_hooks(NodeObject *node, Gradients &inputs, Gradients &outputs, bool on_tensors);
bool has_post_hooks(NodeObject *node);
int run_post_accumulate_hooks(TensorObject *leaf);

// tensor.grad += gradient. Steals `gradient`.
int accumulate_grad(TensorObject *tensor, PyObject *gradient, bool on_tensors);

}  // namespace modtree
