// SPDX-License-Identifier: BSD-3-Clause
// Cross-entropy between `rows` rows of `classes` logits and one class index for each row, without
// reduction, and its gradient.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/index.h"

namespace modtree::kernels {

// With e = `smoothing`, w the class weights (1 where `weight` is null), t the target and l =
// logsumexp(x):
//   loss = (1 - e) w[t] (l - x[t]) + e / classes * sum over c of w[c] (l - x[c])
// and 0 where t == `ignored`. Any other target that is not a class gives 0 too, and clears
// `*inside`.
template <class T>
struct CrossEntropy {
  const T *logits;
  const std::int64_t *targets;
  const T *weight;
  T *loss, *logsumexp;
  std::ptrdiff_t rows, classes;
  std::int64_t ignored;
  double smoothing;
  Inside *inside;
};

// dx from `g`, the gradient of each row's loss.
template <class T>
struct CrossEntropyBackward {
  const T *g, *logits;
  const std::int64_t *targets;
  const T *weight, *logsumexp;
  T *dx;
  std::ptrdiff_t rows, classes;
  std::int64_t ignored;
  double smoothing;
  Inside *inside;
};

void cross_entropy(const CrossEntropy<float> &a);
void cross_entropy(const CrossEntropy<double> &a);
void cross_entropy_backward(const CrossEntropyBackward<float> &a);
void cross_entropy_backward(const CrossEntropyBackward<double> &a);

}  // namespace modtree::kernels
