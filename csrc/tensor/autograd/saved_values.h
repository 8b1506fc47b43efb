// SPDX-License-Identifier: BSD-3-Clause
// What a node has kept for its derivative.
#pragma once

#include "tensor/autograd/node.h"

namespace modtree {

// Are the values still there, and unchanged? 0, or -1 with an error set.
int check_saved(NodeObject *node);

// A saved argument as the functions get it when they run on tensors. New reference.
PyObject *argument_on_tensors(NodeObject *node, std::size_t arg);

// The result as the functions get it. New reference.
PyObject *saved_result(NodeObject *node, bool on_tensors);

}  // namespace modtree
