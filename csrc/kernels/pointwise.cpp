// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/pointwise.h"

#include <cmath>

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
    const double y = ((z > 0.0 ? z : 0.0) + log1p_of<T>(falling<T>(z))) / beta;
    return static_cast<T>(choose(z <= static_cast<double>(b), y, static_cast<double>(x)));
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
    const T right = x >= T(3) ? g : slope;
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

MODTREE_DEFINE_KERNEL(clamp, MAP_PARAMS, map<Clamp>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(hardswish, MAP_PARAMS, map<Hardswish>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(hardsigmoid, MAP_PARAMS, map<Hardsigmoid>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(softplus, MAP_PARAMS, map<Softplus>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(threshold, MAP_PARAMS, map<Threshold>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(hardshrink, MAP_PARAMS, map<Hardshrink>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(softshrink, MAP_PARAMS, map<Softshrink>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(leaky_relu, MAP_PARAMS, map<LeakyRelu>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(sign, MAP_PARAMS, map<Sign>, (x, out, n, a, b))
MODTREE_DEFINE_KERNEL(huber, PAIR_PARAMS, pair_map<Huber>, (x, y, out, n, a, b))
MODTREE_DEFINE_KERNEL(between, PAIR_PARAMS, pair_map<Between>, (x, y, out, n, a, b))
MODTREE_DEFINE_KERNEL(hardswish_backward, PAIR_PARAMS, pair_map<HardswishBackward>,
                      (x, y, out, n, a, b))
MODTREE_DEFINE_KERNEL(hardsigmoid_backward, PAIR_PARAMS, pair_map<HardsigmoidBackward>,
                      (x, y, out, n, a, b))
MODTREE_DEFINE_KERNEL(softplus_backward, PAIR_PARAMS, pair_map<SoftplusBackward>,
                      (x, y, out, n, a, b))
MODTREE_DEFINE_KERNEL(threshold_backward, PAIR_PARAMS, pair_map<ThresholdBackward>,
                      (x, y, out, n, a, b))
MODTREE_DEFINE_KERNEL(shrink_backward, PAIR_PARAMS, pair_map<ShrinkBackward>, (x, y, out, n, a, b))
MODTREE_DEFINE_KERNEL(leaky_relu_backward, PAIR_PARAMS, pair_map<LeakyReluBackward>,
                      (x, y, out, n, a, b))

}  // namespace modtree::kernels
