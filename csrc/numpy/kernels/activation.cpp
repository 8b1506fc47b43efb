// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/activation.h"

#include "kernels/parallel_kernel.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void sigmoid_loop(const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = sigmoid_approx(x[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void silu_loop(const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = x[i] / (static_cast<T>(1) + exp_approx(-x[i]));
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void sigmoid_backward_loop(const T *g, const T *y, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = g[i] * (static_cast<T>(1) - y[i]) * y[i];
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void tanh_backward_loop(const T *g, const T *y, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = g[i] * (static_cast<T>(1) - y[i] * y[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void silu_backward_loop(const T *g, const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const T s = sigmoid_approx(x[i]);
    out[i] = g[i] * (s * (static_cast<T>(1) + x[i] * (static_cast<T>(1) - s)));
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void relu_backward_loop(const T *g, const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = x[i] <= 0 ? static_cast<T>(0) : g[i];
  }
}

}  // namespace

#define MAP_PARAMS(T) (const T *x, T *out, std::ptrdiff_t n)
#define RESULT_GRADIENT_PARAMS(T) (const T *g, const T *y, T *out, std::ptrdiff_t n)
#define GRADIENT_PARAMS(T) (const T *g, const T *x, T *out, std::ptrdiff_t n)
#define MAP_KERNEL(name, loop)                                                                     \
  MODTREE_DEFINE_SHARED_KERNEL(name, MAP_PARAMS, loop, (x, out, n), parallel_values, n, 4,         \
                               (x + first, out + first, last - first))
#define RESULT_GRADIENT_KERNEL(name, loop)                                                         \
  MODTREE_DEFINE_SHARED_KERNEL(name, RESULT_GRADIENT_PARAMS, loop, (g, y, out, n),                 \
                               parallel_values, n, 1.5,                                            \
                               (g + first, y + first, out + first, last - first))
#define GRADIENT_KERNEL(name, loop, work)                                                          \
  MODTREE_DEFINE_SHARED_KERNEL(name, GRADIENT_PARAMS, loop, (g, x, out, n), parallel_values, n,    \
                               work, (g + first, x + first, out + first, last - first))

MAP_KERNEL(sigmoid, sigmoid_loop)
MAP_KERNEL(silu, silu_loop)
RESULT_GRADIENT_KERNEL(sigmoid_backward, sigmoid_backward_loop)
RESULT_GRADIENT_KERNEL(tanh_backward, tanh_backward_loop)
GRADIENT_KERNEL(silu_backward, silu_backward_loop, 5)
GRADIENT_KERNEL(relu_backward, relu_backward_loop, 1.5)

}  // namespace modtree::kernels
