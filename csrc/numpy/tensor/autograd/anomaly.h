// SPDX-License-Identifier: BSD-3-Clause
// detect_anomaly: nodes remember where they were made, and backward looks for NaN.
#pragma once

#include "tensor/autograd/derivative.h"

namespace modtree {

struct AnomalyMode {
  bool enabled = false;
  bool check_nan = true;
};

extern AnomalyMode anomaly_mode;  // of the process, as in torch

// Notes in the node's metadata where the program is, and which node's backward makes it. 0, or -1
// with an error set.
int note_forward(NodeObject *node);

// apply_node(); an error of it, and a NaN among the results, come with a warning that says where
// the node was made.
int apply_inspected(NodeObject *node, Gradients &outputs, const std::vector<bool> &wanted,
                    Gradients &results, bool on_tensors);

}  // namespace modtree
