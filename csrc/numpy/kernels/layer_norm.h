// SPDX-License-Identifier: BSD-3-Clause
// Layer normalization of `rows` contiguous rows of `n` values: (x - mean) / sqrt(var + eps) *
// weight + bias, and its gradients.
//
// `var` is the biased variance of the row; `weight` and `bias` (n values) may be null. `out` may be
// `x`. `mean` and `rstd` (a value for each row) may be null; they get what the backward pass needs.
#pragma once

#include <cstddef>

namespace modtree::kernels {

void layer_norm(const float *x, const float *weight, const float *bias, float *out, float *mean,
                float *rstd, std::ptrdiff_t rows, std::ptrdiff_t n, double eps);
void layer_norm(const double *x, const double *weight, const double *bias, double *out,
                double *mean, double *rstd, std::ptrdiff_t rows, std::ptrdiff_t n, double eps);

// `weight` may be null, and so may each result that is not wanted. Results overlap nothing.
template <class T>
struct LayerNormBackward {
  const T *g, *x, *mean, *rstd, *weight;
  T *dx, *dweight, *dbias;
  std::ptrdiff_t rows, n;
};

void layer_norm_backward(const LayerNormBackward<float> &a);
void layer_norm_backward(const LayerNormBackward<double> &a);

}  // namespace modtree::kernels
