// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/pointwise.h"

#include <cmath>

#include "kernels/parallel_kernel.h"
#include "kernels/strict_math.h"

namespace modtree::kernels {
namespace {

struct Clamp {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T a, T b) {
    const T y = x < a ? a : x;
    return y > b ? b : y;
  }
};

struct Hardswish {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T, T) {
    return x * Clamp::of(x + T(3), T(0), T(6)) / T(6);
  }
};

struct Hardsigmoid {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T, T) {
    return Clamp::of(x + T(3), T(0), T(6)) / T(6);
  }
};

// exp(-|z|), which cannot overflow.
template <class T>
MODTREE_ALWAYS_INLINE double falling(double z) {
  const double size = std::fabs(z);
  return exp_minus<T>(size < 745.0 ? size : 745.0, 0.0);
}

struct Softplus {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T a, T b) {
    const double beta = static_cast<double>(a);
    const double z = static_cast<double>(x) * beta;
    const double y = ((z < 0.0 ? 0.0 : z) + log1p_of<T>(falling<T>(z))) / beta;
    return static_cast<T>(choose(z > static_cast<double>(b), static_cast<double>(x), y));
  }
};

struct Threshold {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T a, T b) {
    return x <= a ? b : x;
  }
};

struct Hardshrink {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T a, T) {
    return x >= -a && x <= a ? T(0) : x;
  }
};

struct Softshrink {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T a, T) {
    return x - Clamp::of(x, -a, a);
  }
};

struct LeakyRelu {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T a, T) {
    return x > T(0) ? x : x * a;
  }
};

struct Sign {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T, T) {
    return static_cast<T>(x > T(0)) - static_cast<T>(x < T(0));
  }
};

struct Huber {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T x, T y, T a, T b) {
    const T z = std::fabs(x - y);
    return (z < a ? T(0.5) * z * z : a * (z - T(0.5) * a)) / b;
  }
};

struct Between {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T g, T x, T a, T b) {
    return x <= a || x >= b ? T(0) : g;
  }
};

struct HardswishBackward {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T g, T x, T, T) {
    const T slope = g * (x / T(3) + T(0.5));
    const T right = x < T(3) ? slope : g;
    return x <= T(-3) ? T(0) : right;
  }
};

struct HardsigmoidBackward {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T g, T y, T, T) {
    return y > T(0) && y < T(1) ? g / T(6) : T(0);
  }
};

struct SoftplusBackward {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T g, T x, T a, T b) {
    const double z = static_cast<double>(x) * static_cast<double>(a);
    const double e = falling<T>(z);
    const double slope = (z < 0.0 ? e : 1.0) / (1.0 + e);
    const double factor = choose(z > static_cast<double>(b), 1.0, choose(z != z, z, slope));
    return static_cast<T>(static_cast<double>(g) * factor);
  }
};

struct ThresholdBackward {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T g, T x, T a, T) {
    return x <= a ? T(0) : g;
  }
};

struct ShrinkBackward {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T g, T x, T a, T) {
    return x >= -a && x <= a ? T(0) : g;
  }
};

struct LeakyReluBackward {
  template <class T>
  static MODTREE_ALWAYS_INLINE T of(T g, T x, T a, T) {
    return x > T(0) ? g : g * a;
  }
};

template <class F, class T>
MODTREE_ALWAYS_INLINE void map(const T *x, T *out, std::ptrdiff_t n, T a, T b) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = F::of(x[i], a, b);
  }
}

template <class F, class T>
MODTREE_ALWAYS_INLINE void pair_map(const T *x, const T *y, T *out, std::ptrdiff_t n, T a, T b) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = F::of(x[i], y[i], a, b);
  }
}

}  // namespace

#define MAP_PARAMS(T) (const T *x, T *out, std::ptrdiff_t n, T a, T b)
#define PAIR_PARAMS(T) (const T *x, const T *y, T *out, std::ptrdiff_t n, T a, T b)
#define MAP_KERNEL(name, F, work)                                                                  \
  MODTREE_DEFINE_SHARED_KERNEL(name, MAP_PARAMS, map<F>, (x, out, n, a, b), parallel_values, n,    \
                               work, (x + first, out + first, last - first, a, b))
#define PAIR_KERNEL(name, F, work)                                                                 \
  MODTREE_DEFINE_SHARED_KERNEL(name, PAIR_PARAMS, pair_map<F>, (x, y, out, n, a, b),               \
                               parallel_values, n, work,                                           \
                               (x + first, y + first, out + first, last - first, a, b))

MAP_KERNEL(clamp, Clamp, 1)
MAP_KERNEL(hardswish, Hardswish, 1)
MAP_KERNEL(hardsigmoid, Hardsigmoid, 1)
MAP_KERNEL(softplus, Softplus, 16)
MAP_KERNEL(threshold, Threshold, 1)
MAP_KERNEL(hardshrink, Hardshrink, 1)
MAP_KERNEL(softshrink, Softshrink, 1)
MAP_KERNEL(leaky_relu, LeakyRelu, 1)
MAP_KERNEL(sign, Sign, 1)
PAIR_KERNEL(huber, Huber, 1.5)
PAIR_KERNEL(between, Between, 1.5)
PAIR_KERNEL(hardswish_backward, HardswishBackward, 1.5)
PAIR_KERNEL(hardsigmoid_backward, HardsigmoidBackward, 1.5)
PAIR_KERNEL(softplus_backward, SoftplusBackward, 16)
PAIR_KERNEL(threshold_backward, ThresholdBackward, 1.5)
PAIR_KERNEL(shrink_backward, ShrinkBackward, 1.5)
PAIR_KERNEL(leaky_relu_backward, LeakyReluBackward, 1.5)

}  // namespace modtree::kernels
