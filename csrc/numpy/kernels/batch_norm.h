// SPDX-License-Identifier: BSD-3-Clause
// Batch normalization of (images, channels, positions): each channel is brought to mean 0 and
// variance 1 over all others.
#pragma once

#include <cstddef>

namespace modtree::kernels {

// Every pointer but `weight` and `bias` is set. With `training` the statistics are computed (var is
// biased), without it `mean` and `var` are read; `rstd` = 1 / sqrt(var + eps) is written either
// way.
template <class T>
struct BatchNorm {
  const T *x, *weight, *bias;
  T *out, *mean, *var, *rstd;
  std::ptrdiff_t images, channels, positions;
  double eps;
  bool training;
};

// `weight` may be null, and so may each result that is not wanted. Without `training` mean and rstd
// were constants.
template <class T>
struct BatchNormBackward {
  const T *g, *x, *mean, *rstd, *weight;
  T *dx, *dweight, *dbias;
  std::ptrdiff_t images, channels, positions;
  bool training;
};

void batch_norm(const BatchNorm<float> &a);
void batch_norm(const BatchNorm<double> &a);
void batch_norm_backward(const BatchNormBackward<float> &a);
void batch_norm_backward(const BatchNormBackward<double> &a);

}  // namespace modtree::kernels
