// SPDX-License-Identifier: BSD-3-Clause
// What a node has kept for its derivative.
#pragma once

#include "tensor/autograd/node.h"

namespace modtree {

// 0 if the values are still there and unchanged, -1 with an error set otherwise.
int check_saved(NodeObject *node);

// How many saved_tensors_hooks are entered, in all threads together.
extern int saved_hooks_depth;

// Puts what the hooks of this thread make of a saved value (an array, or a sequence with arrays) in
// its place. `original` is the tensor, or the sequence with tensors, that it was taken from. 1: it
// is packed, 0: no hooks are set, -1: an error is set.
int pack_saved(PyObject **value, PyObject *original);

// A saved argument as it was given. New reference, null with an error set.
PyObject *saved_argument(NodeObject *node, std::size_t arg);

// A saved argument as the functions get it when they run on tensors. New reference.
PyObject *argument_on_tensors(NodeObject *node, std::size_t arg);

// The result as the functions get it. On tensors it is an output of `source`: the node, or what
// represents it on the graph. New reference.
PyObject *saved_result(NodeObject *node, NodeObject *source, bool on_tensors);

}  // namespace modtree
