// SPDX-License-Identifier: BSD-3-Clause
// Normalization of groups of channels of one image, for images (images, groups * width, positions).
#pragma once

#include <cstddef>

namespace modtree::kernels {

// `weight` and `bias`, one for each channel, may be null; mean and rstd, one for each group of each
// image, are written.
template <class T>
struct GroupNorm {
  const T *x, *weight, *bias;
  T *out, *mean, *rstd;
  std::ptrdiff_t images, groups, width, positions;
  double eps;
};

// `weight` may be null, and so may each result that is not wanted.
template <class T>
struct GroupNormBackward {
  const T *g, *x, *mean, *rstd, *weight;
  T *dx, *dweight, *dbias;
  std::ptrdiff_t images, groups, width, positions;
};

void group_norm(const GroupNorm<float> &a);
void group_norm(const GroupNorm<double> &a);
void group_norm_backward(const GroupNormBackward<float> &a);
void group_norm_backward(const GroupNormBackward<double> &a);

}  // namespace modtree::kernels
