// SPDX-License-Identifier: BSD-3-Clause
// Layer normalisation of `rows` contiguous rows of `n` values: (x - mean) / sqrt(var + eps) * weight + bias.
//
// `var` is the biased variance of the row; `weight` and `bias` (n values) may be null. `out` may be `x`.
#pragma once

#include <cstddef>

namespace modtree::kernels {

void layer_norm_f32(const float *x, const float *weight, const float *bias, float *out, std::ptrdiff_t rows,
                    std::ptrdiff_t n, double eps);
void layer_norm_f64(const double *x, const double *weight, const double *bias, double *out, std::ptrdiff_t rows,
                    std::ptrdiff_t n, double eps);

}  // namespace modtree::kernels
