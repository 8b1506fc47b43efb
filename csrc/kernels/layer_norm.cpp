// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void layer_norm_rows(const T *x, const T *weight, const T *bias, T *out, std::ptrdiff_t rows,
                                           std::ptrdiff_t n, double eps) {
  if (n == 0) {
    return;
  }
  const auto count = static_cast<double>(n);
  for (std::ptrdiff_t row = 0; row < rows; ++row, x += n, out += n) {
    const T *from = x;
    const auto mean = static_cast<T>(block_sum<T>(n, [=](std::ptrdiff_t i) { return from[i]; }) / count);
    const double variance = block_sum<T>(n, [=](std::ptrdiff_t i) {
                              const T d = from[i] - mean;
                              return d * d;
                            }) / count;
    const auto scale = static_cast<T>(1.0 / std::sqrt(variance + eps));
    if (weight && bias) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
      }
    } else if (weight) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        out[i] = (x[i] - mean) * scale * weight[i];
      }
    } else {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        out[i] = (x[i] - mean) * scale + (bias ? bias[i] : static_cast<T>(0));
      }
    }
  }
}

}  // namespace

MODTREE_DEFINE_KERNEL(layer_norm_f32,
                      (const float *x, const float *weight, const float *bias, float *out, std::ptrdiff_t rows,
                       std::ptrdiff_t n, double eps),
                      layer_norm_rows, (x, weight, bias, out, rows, n, eps))
MODTREE_DEFINE_KERNEL(layer_norm_f64,
                      (const double *x, const double *weight, const double *bias, double *out, std::ptrdiff_t rows,
                       std::ptrdiff_t n, double eps),
                      layer_norm_rows, (x, weight, bias, out, rows, n, eps))

}  // namespace modtree::kernels
