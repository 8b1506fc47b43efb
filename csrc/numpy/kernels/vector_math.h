// SPDX-License-Identifier: BSD-3-Clause
// exp and reductions written so that compilers turn loops over them into vector code.
//
// Only for files compiled with -ffast-math -fno-finite-math-only: NaN and infinities keep their
// meaning there, but sums may be reordered, so nothing here may rely on the order of additions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/dispatch.h"

namespace modtree::kernels {

template <class To, class From>
MODTREE_ALWAYS_INLINE To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast needs equal sizes");
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// 2^k * p(r) with x = k ln 2 + r; k is found by truncating a positive number
// because SSE2 has no vector floor. Below the smallest normal
// number the result is 0; above the largest it is infinity; NaN stays NaN. Relative error about 2
// ulp.
//
// ln 2 = a + b where k a has no rounding error. x - k a - k b would be usual, but -ffast-math may
// begin with x - k b, which costs |x| ulp; so exp(-k b) = 1 - k b, as good as exact for such a
// small b, is a factor.
MODTREE_ALWAYS_INLINE float exp_approx(float x) {
  const float scaled = x * 1.44269504089f;
  // NaN and values out of range must not reach the conversion to int.
  const float at_least = scaled > -126.0f ? scaled : -126.0f;
  const float in_range = at_least < 127.0f ? at_least : 127.0f;
  const std::int32_t k = static_cast<std::int32_t>(in_range + 126.5f) - 126;
  const auto kf = static_cast<float>(k);
  const float r = x - kf * 0.693145751953125f;
  // Taylor to degree 7: |r| <= ln(2)/2 leaves 5e-9.
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  p -= p * (kf * 1.42860682e-6f);
  float y = p * bit_cast<float>(static_cast<std::uint32_t>(k + 127) << 23);
  y = x < -87.3f ? 0.0f : y;
  return x > 88.3f ? std::numeric_limits<float>::infinity() : y;
}

MODTREE_ALWAYS_INLINE double exp_approx(double x) {
  const double scaled = x * 1.4426950408889634074;
  const double at_least = scaled > -1022.0 ? scaled : -1022.0;
  const double in_range = at_least < 1023.0 ? at_least : 1023.0;
  const std::int32_t k = static_cast<std::int32_t>(in_range + 1022.5) - 1022;
  const auto kf = static_cast<double>(k);
  const double r = x - kf * 0.69314718055989033;
  // Taylor to degree 13: |r| <= ln(2)/2 leaves 5e-18.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  p -= p * (kf * 5.497923018708371e-14);
  double y = p * bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
  y = x < -708.3 ? 0.0 : y;
  return x > 709.0 ? std::numeric_limits<double>::infinity() : y;
}

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using type = std::int32_t;
};
template <>
struct BitsOf<double> {
  using type = std::int64_t;
};

// The largest of n >= 1 values; NaN when one of them is a positive NaN, unspecified for a negative
// NaN (the caller's sum becomes NaN anyway). Compares bits as integers: a floating-point maximum
// that honours NaN is not vectorised.
template <class T>
MODTREE_ALWAYS_INLINE T max_value(const T *x, std::ptrdiff_t n) {
  using Int = typename BitsOf<T>::type;
  constexpr Int kMagnitude = std::numeric_limits<Int>::max();
  constexpr int kSign = static_cast<int>(8 * sizeof(Int) - 1);
  Int best = std::numeric_limits<Int>::min();
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const Int bits = bit_cast<Int>(x[i]);
    const Int ordered = bits ^ ((bits >> kSign) & kMagnitude);
    best = ordered > best ? ordered : best;
  }
  return bit_cast<T>(best ^ ((best >> kSign) & kMagnitude));
}

// So many values are added in T before the sum goes to a double.
constexpr std::ptrdiff_t kBlock = 1024;

// Adds `term(i)` for i < n: blocks in T (vectorised), their sums in double, so that long rows lose
// no accuracy.
template <class T, class Term>
MODTREE_ALWAYS_INLINE double block_sum(std::ptrdiff_t n, Term term) {
  double total = 0.0;
  for (std::ptrdiff_t start = 0; start < n; start += kBlock) {
    const std::ptrdiff_t stop = n - start < kBlock ? n : start + kBlock;
    T sum = 0;
    for (std::ptrdiff_t i = start; i < stop; ++i) {
      sum += term(i);
    }
    total += static_cast<double>(sum);
  }
  return total;
}

// Sums over rows, one for each column: rows are added in T, and every few rows the sums go to
// doubles, so that many rows lose no accuracy.
template <class T>
class ColumnSum {
public:
  explicit ColumnSum(std::size_t columns) : partial_(columns), total_(columns) {}

  // Where the caller adds the next row.
  MODTREE_ALWAYS_INLINE T *row() {
    if (rows_++ == kRows) {
      flush();
      rows_ = 1;
    }
    return partial_.data();
  }

  MODTREE_ALWAYS_INLINE const double *totals() {
    flush();
    return total_.data();
  }

  MODTREE_ALWAYS_INLINE void store(T *out) {
    flush();
    for (std::size_t i = 0; i < total_.size(); ++i) {
      out[i] = static_cast<T>(total_[i]);
    }
  }

private:
  MODTREE_ALWAYS_INLINE void flush() {
    T *__restrict partial = partial_.data();
    double *__restrict total = total_.data();
    for (std::size_t i = 0; i < total_.size(); ++i) {
      total[i] += static_cast<double>(partial[i]);
      partial[i] = 0;
    }
  }

  static constexpr int kRows = 64;
  std::vector<T> partial_;
  std::vector<double> total_;
  int rows_ = 0;
};

// tanh with a relative error of a few ulp, also near 0.
MODTREE_ALWAYS_INLINE float tanh_approx(float x) {
  const float far = 1.0f - 2.0f / (1.0f + exp_approx(2.0f * x));
  const float s = x * x;
  float p = -1382.0f / 155925;
  p = p * s + 62.0f / 2835;
  p = p * s - 17.0f / 315;
  p = p * s + 2.0f / 15;
  p = p * s - 1.0f / 3;
  const float near = x + x * s * p;
  return s < 0.1f ? near : far;
}

// Double precision is for checking: the C library's function, not vectorised.
MODTREE_ALWAYS_INLINE double tanh_approx(double x) { return std::tanh(x); }

template <class T>
MODTREE_ALWAYS_INLINE T sigmoid_approx(T x) {
  return static_cast<T>(1) / (static_cast<T>(1) + exp_approx(-x));
}

}  // namespace modtree::kernels
