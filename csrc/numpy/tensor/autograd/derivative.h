// SPDX-License-Identifier: BSD-3-Clause
// Runs the derivative of a node: from the gradients of its outputs to those of its inputs.
#pragma once

#include <vector>

#include "tensor/autograd/node.h"

namespace modtree {

// Owned references, null for "no gradient".
class Gradients {
public:
  explicit Gradients(std::size_t count) : values_(count, nullptr) {}
  Gradients(const Gradients &) = delete;
  Gradients &operator=(const Gradients &) = delete;
  ~Gradients() {
    for (PyObject *value : values_) {
      Py_XDECREF(value);
    }
  }
  std::size_t size() const { return values_.size(); }
  PyObject *&operator[](std::size_t i) { return values_[i]; }
  PyObject *take(std::size_t i) {
    PyObject *value = values_[i];
    values_[i] = nullptr;
    return value;
  }
  bool all_none() const {
    for (PyObject *value : values_) {
      if (value != nullptr) {
        return false;
      }
    }
    return true;
  }

private:
  std::vector<PyObject *> values_;
};

// Gradients of the node's edges where `wanted`, into `results` (one per edge). 0, or -1 with an
// error set.
int apply_node(NodeObject *node, Gradients &outputs, const std::vector<bool> &wanted,
               Gradients &results, bool on_tensors);

}  // namespace modtree
