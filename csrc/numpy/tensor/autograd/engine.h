// SPDX-License-Identifier: BSD-3-Clause
// Backward: from roots to leaves.
#pragma once

#include "tensor/autograd/node.h"

namespace modtree {

struct BackwardOptions {
  bool keep_graph;    // saved values stay, so that the graph can be gone through again
  bool create_graph;  // backward itself is recorded
  bool accumulate;    // adds to the grad of leaves (or of `inputs`); else the gradients of `inputs`
                      // are returned
  bool allow_unused;
};

// Gradients of the sum of `roots`, each weighted by its entry of `gradients` (None: 1, for a tensor
// of one element). Both are tuples; `inputs` is a tuple of tensors or null for all leaves. Returns
// a tuple for `inputs`, or None when it accumulates.
PyObject *run_backward(PyObject *roots, PyObject *gradients, PyObject *inputs,
                       const BackwardOptions &options);

// The number of the pass that runs in this context; -1 outside of one.
std::int64_t current_backward_id();

// True if the pass of that number has not ended, in whatever context.
bool is_backward_running(std::int64_t number);

// 1 if the pass that runs in this context runs the node; -1 with an error set.
int current_backward_runs(NodeObject *node);

}  // namespace modtree
