// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/gelu.h"

#include <cmath>

#include "kernels/parallel_kernel.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

// Phi(-a) exp(a^2/2) for a >= 0, a smooth function of t = 1 / (1 + 0.3 a): a polynomial fitted to a
// relative error of 1.5e-7 on [0, 14].
MODTREE_ALWAYS_INLINE float scaled_tail(float a) {
  const float t = 1.0f / (1.0f + 0.3f * a);
  float q = 0.035674799233675f;
  q = q * t - 0.15720316767692566f;
  q = q * t + 0.20635361969470978f;
  q = q * t - 0.053683727979660034f;
  q = q * t + 0.12856166064739227f;
  q = q * t + 0.09991348534822464f;
  q = q * t + 0.12075395882129669f;
  q = q * t + 0.11962930113077164f;
  return q * t;
}

// exp(-a^2/2) for a >= 0, 0 where that is not a normal number: exp_approx without the cases that do
// not come here. 2^k * p(f) with k + f = a^2 * -log2(e)/2; k is an integer for a while, as
// -ffast-math may add other numbers in another order. p is fitted to a relative error of 2e-9 on
// [-1/2, 1/2].
MODTREE_ALWAYS_INLINE float falling(float a) {
  const float square = a * a;
  const float scaled = square * -0.72134752044f;
  // Also for NaN, which comes back with the factor a.
  const float in_range = scaled > -127.0f ? scaled : -127.0f;
  const auto exponent = static_cast<std::int32_t>(in_range + 127.5f);
  const float f = in_range - static_cast<float>(exponent - 127);
  float p = 0.00015345811f;
  p = p * f + 0.0013399931f;
  p = p * f + 0.009618489f;
  p = p * f + 0.055503286f;
  p = p * f + 0.24022646f;
  p = p * f + 0.6931472f;
  p = p * f + 1.0f;
  return p * bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23);
}

// x Phi(x) = max(x, 0) - a Phi(-a) with a = |x|. No cancellation: the negative tail keeps its
// relative accuracy.
MODTREE_ALWAYS_INLINE float gelu(float x) {
  const float a = x < 0.0f ? -x : x;
  const float tail = a * (falling(a) * scaled_tail(a));
  const float y = (x > 0.0f ? x : 0.0f) - tail;
  return x > 14.0f ? x : y;  // +inf would give inf * 0 above
}

// Double precision is for checking, not for speed: the C library's function, not vectorised.
MODTREE_ALWAYS_INLINE double gelu(double x) {
  return 0.5 * x * std::erfc(x * -0.70710678118654752440);
}

// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
template <class T>
MODTREE_ALWAYS_INLINE T gelu_tanh(T x) {
  const T minus_2u =
      static_cast<T>(-1.59576912160573071176) * (x + static_cast<T>(0.044715) * x * x * x);
  return x / (static_cast<T>(1) + exp_approx(minus_2u));
}

// Phi(x) + x phi(x)
MODTREE_ALWAYS_INLINE float gelu_slope(float x) {
  const float a = x < 0.0f ? -x : x;
  const float e = falling(a);
  const float tail = e * scaled_tail(a);
  return (x > 0.0f ? 1.0f - tail : tail) + x * (e * 0.3989422804f);
}

MODTREE_ALWAYS_INLINE double gelu_slope(double x) {
  return 0.5 * std::erfc(x * -0.70710678118654752440) +
         x * (std::exp(-0.5 * x * x) * 0.39894228040143267794);
}

// With s = 1 / (1 + exp(-2u)): the derivative of x s is s + x s (1 - s) 2u'.
template <class T>
MODTREE_ALWAYS_INLINE T gelu_tanh_slope(T x) {
  const T two_u =
      static_cast<T>(1.59576912160573071176) * (x + static_cast<T>(0.044715) * x * x * x);
  const T slope = static_cast<T>(1.59576912160573071176) *
                  (static_cast<T>(1) + static_cast<T>(0.134145) * x * x);
  const T s = sigmoid_approx(two_u);
  return s + x * (s * (static_cast<T>(1) - s)) * slope;
}

template <class T>
MODTREE_ALWAYS_INLINE void gelu_backward_loop(const T *g, const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = g[i] * gelu_slope(x[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void gelu_tanh_backward_loop(const T *g, const T *x, T *out,
                                                   std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = g[i] * gelu_tanh_slope(x[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void gelu_loop(const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = gelu(x[i]);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void gelu_tanh_loop(const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = gelu_tanh(x[i]);
  }
}

}  // namespace

#define MAP_PARAMS(T) (const T *x, T *out, std::ptrdiff_t n)
#define GRADIENT_PARAMS(T) (const T *g, const T *x, T *out, std::ptrdiff_t n)
#define MAP_KERNEL(name, loop)                                                                     \
  MODTREE_DEFINE_SHARED_KERNEL(name, MAP_PARAMS, loop, (x, out, n), parallel_values, n, 6,         \
                               (x + first, out + first, last - first))
#define GRADIENT_KERNEL(name, loop)                                                                \
  MODTREE_DEFINE_SHARED_KERNEL(name, GRADIENT_PARAMS, loop, (g, x, out, n), parallel_values, n, 8, \
                               (g + first, x + first, out + first, last - first))

MAP_KERNEL(gelu, gelu_loop)
MAP_KERNEL(gelu_tanh, gelu_tanh_loop)
GRADIENT_KERNEL(gelu_backward, gelu_backward_loop)
GRADIENT_KERNEL(gelu_tanh_backward, gelu_tanh_backward_loop)

}  // namespace modtree::kernels
