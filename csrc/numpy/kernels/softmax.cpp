// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/softmax.h"

#include <cmath>

#include "kernels/parallel_kernel.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void softmax_rows(const T *x, T *out, std::ptrdiff_t rows, std::ptrdiff_t n) {
  if (n == 0) {
    return;
  }
  for (std::ptrdiff_t row = 0; row < rows; ++row, x += n, out += n) {
    const T largest = max_value(x, n);
    const T *from = x;
    T *to = out;
    const double sum =
        block_sum<T>(n, [=](std::ptrdiff_t i) { return to[i] = exp_approx(from[i] - largest); });
    const auto scale = static_cast<T>(1.0 / sum);
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      out[i] *= scale;
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void log_softmax_rows(const T *x, T *out, std::ptrdiff_t rows,
                                            std::ptrdiff_t n) {
  if (n == 0) {
    return;
  }
  for (std::ptrdiff_t row = 0; row < rows; ++row, x += n, out += n) {
    const T largest = max_value(x, n);
    const T *from = x;
    T *to = out;
    // The shifted values are stored in between: in one expression the compiler may compute x -
    // (largest + log(sum)), which rounds the small term away when values are large.
    const double sum = block_sum<T>(n, [=](std::ptrdiff_t i) {
      to[i] = from[i] - largest;
      return exp_approx(to[i]);
    });
    const auto log_sum = static_cast<T>(std::log(sum));
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      out[i] -= log_sum;
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void softmax_backward_rows(const T *g, const T *y, T *out,
                                                 std::ptrdiff_t rows, std::ptrdiff_t n) {
  for (std::ptrdiff_t row = 0; row < rows; ++row, g += n, y += n, out += n) {
    const T *grad = g;
    const T *result = y;
    const auto sum =
        static_cast<T>(block_sum<T>(n, [=](std::ptrdiff_t i) { return grad[i] * result[i]; }));
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      out[i] = y[i] * (g[i] - sum);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void log_softmax_backward_rows(const T *g, const T *y, T *out,
                                                     std::ptrdiff_t rows, std::ptrdiff_t n) {
  for (std::ptrdiff_t row = 0; row < rows; ++row, g += n, y += n, out += n) {
    const T *grad = g;
    const auto sum = static_cast<T>(block_sum<T>(n, [=](std::ptrdiff_t i) { return grad[i]; }));
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      out[i] = g[i] - exp_approx(y[i]) * sum;
    }
  }
}

}  // namespace

#define ROWS_PARAMS(T) (const T *x, T *out, std::ptrdiff_t rows, std::ptrdiff_t n)
#define ROWS_GRADIENT_PARAMS(T)                                                                    \
  (const T *g, const T *y, T *out, std::ptrdiff_t rows, std::ptrdiff_t n)
#define ROWS_KERNEL(name, body)                                                                    \
  MODTREE_DEFINE_SHARED_KERNEL(name, ROWS_PARAMS, body, (x, out, rows, n), parallel_for, rows,     \
                               6 * n + 32, (x + first * n, out + first * n, last - first, n))
#define ROWS_GRADIENT_KERNEL(name, body)                                                           \
  MODTREE_DEFINE_SHARED_KERNEL(name, ROWS_GRADIENT_PARAMS, body, (g, y, out, rows, n),             \
                               parallel_for, rows, 4 * n + 32,                                     \
                               (g + first * n, y + first * n, out + first * n, last - first, n))

ROWS_KERNEL(softmax, softmax_rows)
ROWS_KERNEL(log_softmax, log_softmax_rows)
ROWS_GRADIENT_KERNEL(softmax_backward, softmax_backward_rows)
ROWS_GRADIENT_KERNEL(log_softmax_backward, log_softmax_backward_rows)

}  // namespace modtree::kernels
