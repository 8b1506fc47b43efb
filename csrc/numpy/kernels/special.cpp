// SPDX-License-Identifier: BSD-3-Clause
// Everything is computed in double: float results are rounded once, and need fewer terms.
#include "kernels/special.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/parallel_kernel.h"
#include "kernels/special_coefficients.h"
#include "kernels/strict_math.h"

namespace modtree::kernels {
namespace {

template <class T>
constexpr bool kSingle = std::is_same_v<T, float>;

// 1 - erf(a) for a >= 0. exp(-a^2) loses no digits to the square: a = h + l, where h^2 is exact.
template <class T>
MODTREE_ALWAYS_INLINE double tail_of(double magnitude) {
  constexpr double kLargest = kSingle<T> ? 11.0 : 28.0;
  const double a = magnitude < kLargest ? magnitude : kLargest;
  const double h = bits_as<double>(bits_as<std::uint64_t>(a) & 0xfffffffff8000000);
  const double e = exp_minus<T>(h * h, (a - h) * (a + h));
  const double q = (a - 4.0) / (a + 4.0);
  double p;
  if constexpr (kSingle<T>) {
    p = polynomial(kScaledTailSingle, q);
  } else {
    p = polynomial(kScaledTail, q);
  }
  return e * p / (1.0 + 2.0 * a);
}

template <class T>
MODTREE_ALWAYS_INLINE void erf_loop(const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const auto v = static_cast<double>(x[i]);
    const double a = std::fabs(v);
    double centre;
    if constexpr (kSingle<T>) {
      centre = v * polynomial(kCentreSingle, v * v);
    } else {
      centre = v * polynomial(kCentre, v * v);
    }
    const double tail = tail_of<T>(a);
    const double far = v < 0.0 ? tail - 1.0 : 1.0 - tail;
    const double y = a <= 1.0 ? centre : far;
    out[i] = static_cast<T>(v != v ? v : y);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void erfinv_loop(const T *x, T *out, std::ptrdiff_t n) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const auto v = static_cast<double>(x[i]);
    const double a = std::fabs(v);
    const double rest = (1.0 - a) * (1.0 + a);
    const double w = -log_of(rest > 1e-300 ? rest : 1e-300);
    const double root = std::sqrt(w > 0.0 ? w : 0.0);
    double near, far;
    if constexpr (kSingle<T>) {
      near = polynomial(kNearSingle, w - 3.125);
      far = polynomial(kFarSingle, root - 3.25);
    } else {
      near = polynomial(kNear, w - 3.125);
      const double middle = polynomial(kFar, root - 3.25);
      const double tail = polynomial(kTail, root - 5.0);
      far = root < 4.0 ? middle : tail;
    }
    const double y = v * (w < 6.25 ? near : far);
    const double edge = a == 1.0 ? v * kInf : kNaN;
    out[i] = static_cast<T>(a < 1.0 ? y : edge);
  }
}

// kSteps times: where z < 12, 1 / z goes to the fraction, and z one further. No loop, as that would
// not be unrolled early enough.
template <int kSteps>
MODTREE_ALWAYS_INLINE void step_right(double &z, double &numerator, double &denominator) {
  if constexpr (kSteps > 0) {
    const double factor = z < 12.0 ? z : 1.0;
    numerator = numerator * factor + (z < 12.0 ? denominator : 0.0);
    denominator *= factor;
    z += z < 12.0 ? 1.0 : 0.0;
    step_right<kSteps - 1>(z, numerator, denominator);
  }
}

// digamma for z >= 1/2: by recurrence, with one division for all its terms, up to where the series
// of Bernoulli numbers holds.
MODTREE_ALWAYS_INLINE double digamma_right(double z) {
  double numerator = 0.0, denominator = 1.0;
  step_right<12>(z, numerator, denominator);
  constexpr double kSeries[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                                5.0 / 660, -691.0 / 32760, 1.0 / 12,  -3617.0 / 8160};
  const double inverse = 1.0 / z;
  const double s = inverse * inverse;
  const double limited = z < 1e300 ? z : 1e300;
  const double y =
      log_of(limited) - 0.5 * inverse - s * polynomial(kSeries, s) - numerator / denominator;
  return choose(z <= 1e300, y, z);  // infinity and NaN
}

template <class T>
MODTREE_ALWAYS_INLINE void digamma_loop(const T *x, T *out, std::ptrdiff_t n) {
  constexpr std::ptrdiff_t kBlock = 256;
  constexpr double kPi = 3.14159265358979323846;
  double values[kBlock];
  for (std::ptrdiff_t start = 0; start < n; start += kBlock) {
    const std::ptrdiff_t count = n - start < kBlock ? n - start : kBlock;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const auto v = static_cast<double>(x[start + i]);
      values[i] = digamma_right(v < 0.5 ? 1.0 - v : v);
    }
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const auto v = static_cast<double>(x[start + i]);
      if (v < 0.5) {
        // The fraction alone, as pi * v would lose the digits behind the point.
        const double part = v - std::nearbyint(v);
        values[i] -= kPi / std::tan(kPi * part);
        if (part == 0.0 || std::isinf(v)) {
          values[i] = v == 0.0 ? -std::copysign(std::numeric_limits<double>::infinity(), v)
                               : std::numeric_limits<double>::quiet_NaN();
        }
      }
    }
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      out[start + i] = static_cast<T>(values[i]);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void logaddexp_loop(const T *x, const T *y, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const auto a = static_cast<double>(x[i]), b = static_cast<double>(y[i]);
    const double larger = a > b ? a : b;
    const double apart = a == b ? 0.0 : std::fabs(a - b);
    const double e = exp_minus<T>(apart < 745.0 ? apart : 745.0, 0.0);
    const double sum = larger + log1p_of<T>(e);
    out[i] = static_cast<T>(choose((a != a) | (b != b), a + b, sum));
  }
}

// x - trunc(x / y) y is exact where the quotient is a small whole number: the division may be off
// by one, which the sign of the rest and its size tell. For the rest, and without a fused
// multiply-add, the C library.
// A number that is not negative, with the sign of another: std::copysign is not vectorised
// everywhere.
MODTREE_ALWAYS_INLINE double with_sign(double size, double of) {
  return bits_as<double>(bits_as<std::uint64_t>(size) |
                         (bits_as<std::uint64_t>(of) & 0x8000000000000000));
}

// In double, products of a float and a quotient below 2^24 are exact.
MODTREE_ALWAYS_INLINE double quick_fmod(float x, float y, bool &exact) {
  const auto a = static_cast<double>(x), b = static_cast<double>(y);
  const double size = std::fabs(b), from = std::fabs(a);
  const double q = std::trunc(from / size);
  double rest = from - q * size;
  rest = rest < 0.0 ? rest + size : rest;
  rest = rest >= size ? rest - size : rest;
  exact = (q < 16777216.0) & (size < 1e300);
  return with_sign(rest, a);
}

// Two halves of y whose products with a quotient below 2^26 are exact.
MODTREE_ALWAYS_INLINE double quick_fmod(double x, double y, bool &exact) {
  const double size = std::fabs(y), from = std::fabs(x);
  const double q = std::trunc(from / size);
  const double high = bits_as<double>(bits_as<std::uint64_t>(size) & 0xfffffffff8000000);
  double rest = (from - q * high) - q * (size - high);
  rest = rest < 0.0 ? rest + size : rest;
  rest = rest >= size ? rest - size : rest;
  exact = (q < 67108864.0) & (size > 1e-280) & (size < 1e300);
  return with_sign(rest, x);
}

template <class T>
MODTREE_ALWAYS_INLINE void fmod_loop(const T *x, const T *y, T *out, std::ptrdiff_t n) {
  constexpr int kBlock = 128;
  T rests[kBlock];
  for (std::ptrdiff_t start = 0; start < n; start += kBlock) {
    const int count = static_cast<int>(n - start < kBlock ? n - start : kBlock);
    std::int64_t wrong = 0;
    for (int i = 0; i < count; ++i) {
      bool exact;
      rests[i] = static_cast<T>(quick_fmod(x[start + i], y[start + i], exact));
      wrong += exact ? 0 : 1;
    }
    for (int i = 0; wrong != 0 && i < count; ++i) {
      bool exact;
      quick_fmod(x[start + i], y[start + i], exact);
      if (!exact) {
        rests[i] = std::fmod(x[start + i], y[start + i]);
        --wrong;
      }
    }
    for (int i = 0; i < count; ++i) {
      out[start + i] = rests[i];
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void remainder_loop(const T *x, const T *y, T *out, std::ptrdiff_t n) {
  constexpr std::ptrdiff_t kBlock = 128;
  T rests[kBlock];
  for (std::ptrdiff_t start = 0; start < n; start += kBlock) {
    const std::ptrdiff_t count = n - start < kBlock ? n - start : kBlock;
    fmod_loop(x + start, y + start, rests, count);
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const T by = y[start + i];
      const T rest = rests[i];
      const bool apart = rest != 0 && (rest < 0) != (by < 0);
      out[start + i] = apart ? rest + by : rest;
    }
  }
}

}  // namespace

#define MAP_PARAMS(T) (const T *x, T *out, std::ptrdiff_t n)
#define PAIR_PARAMS(T) (const T *x, const T *y, T *out, std::ptrdiff_t n)
#define MAP_KERNEL(name, loop, work)                                                               \
  MODTREE_DEFINE_SHARED_KERNEL(name, MAP_PARAMS, loop, (x, out, n), parallel_values, n, work,      \
                               (x + first, out + first, last - first))
#define PAIR_KERNEL(name, loop, work)                                                              \
  MODTREE_DEFINE_SHARED_KERNEL(name, PAIR_PARAMS, loop, (x, y, out, n), parallel_values, n, work,  \
                               (x + first, y + first, out + first, last - first))

MAP_KERNEL(erf, erf_loop, 16)
MAP_KERNEL(erfinv, erfinv_loop, 24)
MAP_KERNEL(digamma, digamma_loop, 40)
PAIR_KERNEL(logaddexp, logaddexp_loop, 16)
PAIR_KERNEL(fmod, fmod_loop, 12)
PAIR_KERNEL(remainder, remainder_loop, 14)

}  // namespace modtree::kernels
