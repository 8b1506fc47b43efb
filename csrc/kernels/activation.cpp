// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/activation.h"

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

MODTREE_DEFINE_KERNEL(sigmoid, MAP_PARAMS, sigmoid_loop, (x, out, n))
MODTREE_DEFINE_KERNEL(silu, MAP_PARAMS, silu_loop, (x, out, n))
MODTREE_DEFINE_KERNEL(sigmoid_backward, RESULT_GRADIENT_PARAMS, sigmoid_backward_loop,
                      (g, y, out, n))
MODTREE_DEFINE_KERNEL(tanh_backward, RESULT_GRADIENT_PARAMS, tanh_backward_loop, (g, y, out, n))
MODTREE_DEFINE_KERNEL(silu_backward, GRADIENT_PARAMS, silu_backward_loop, (g, x, out, n))
MODTREE_DEFINE_KERNEL(relu_backward, GRADIENT_PARAMS, relu_backward_loop, (g, x, out, n))

}  // namespace modtree::kernels
