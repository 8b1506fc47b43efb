// SPDX-License-Identifier: BSD-3-Clause
// Polynomials, exp and log written so that compilers turn loops over them into vector code, for
// files compiled without -ffast-math: the order of operations is what the text says.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/dispatch.h"

namespace modtree::kernels {

template <class To, class From>
MODTREE_ALWAYS_INLINE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "bits_as needs equal sizes");
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// a or b, by the condition, with operations on bits: g++ would compute what only one of the two
// needs behind a branch, and then not vectorise.
MODTREE_ALWAYS_INLINE double choose(bool condition, double a, double b) {
  const std::uint64_t mask = condition ? ~std::uint64_t{0} : 0;
  return bits_as<double>((bits_as<std::uint64_t>(a) & mask) | (bits_as<std::uint64_t>(b) & ~mask));
}

// c[0] + c[1] x + ...; a loop over more than 16 coefficients would not be unrolled, and what is
// around it then not be vectorised.
template <std::size_t kFirst = 0, std::size_t N>
MODTREE_ALWAYS_INLINE double polynomial(const double (&c)[N], double x) {
  if constexpr (kFirst + 1 == N) {
    return c[kFirst];
  } else {
    return polynomial<kFirst + 1>(c, x) * x + c[kFirst];
  }
}

// 1, 1, 1/2, 1/6, ...: exp(r) for |r| <= ln(2)/2 with an error of 4e-18, and of 3e-10.
constexpr double kExp[] = {1.0,
                           1.0,
                           1.0 / 2,
                           1.0 / 6,
                           1.0 / 24,
                           1.0 / 120,
                           1.0 / 720,
                           1.0 / 5040,
                           1.0 / 40320,
                           1.0 / 362880,
                           1.0 / 3628800,
                           1.0 / 39916800,
                           1.0 / 479001600,
                           1.0 / 6227020800};
constexpr double kExpSingle[] = {1.0,      1.0,       1.0 / 2,   1.0 / 6,
                                 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040};

// ln 2 as a sum whose first part times an exponent has no rounding error.
constexpr double kLn2High = 0.69314718055989033;
constexpr double kLn2Low = 5.497923018708371e-14;

// exp(-(high + low)) for 0 <= high <= 800 and a low of a few digits behind it. Results below the
// smallest normal number keep what digits they have.
template <class T>
MODTREE_ALWAYS_INLINE double exp_minus(double high, double low) {
  const std::int32_t k = static_cast<std::int32_t>(high * 1.4426950408889634 + 0.5);
  const auto kf = static_cast<double>(k);
  const double r = (kf * kLn2High - high) + (kf * kLn2Low - low);
  double p;
  if constexpr (sizeof(T) == sizeof(float)) {
    p = polynomial(kExpSingle, r);
  } else {
    p = polynomial(kExp, r);
  }
  const std::int32_t half = k >> 1;
  const auto first = static_cast<std::uint64_t>(1023 - half) << 52;
  const auto second = static_cast<std::uint64_t>(1023 - (k - half)) << 52;
  return p * bits_as<double>(first) * bits_as<double>(second);
}

// 2 atanh(f) = log((1 + f) / (1 - f)) for |f| <= 0.172, and for |f| <= 1/3.
constexpr double kAtanh[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                             2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
constexpr double kAtanhWide[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23,
                                 2.0 / 25, 2.0 / 27, 2.0 / 29, 2.0 / 31, 2.0 / 33};
constexpr double kAtanhWideSingle[] = {2.0,     2.0 / 3,  2.0 / 5,  2.0 / 7,
                                       2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15};

// log(1 + e) for 0 <= e <= 1.
template <class T>
MODTREE_ALWAYS_INLINE double log1p_of(double e) {
  const double f = e / (2.0 + e);
  if constexpr (sizeof(T) == sizeof(float)) {
    return f * polynomial(kAtanhWideSingle, f * f);
  } else {
    return f * polynomial(kAtanhWide, f * f);
  }
}

// log of a positive normal number.
MODTREE_ALWAYS_INLINE double log_of(double v) {
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  // The exponent, moved so that it is positive: AVX2 has no arithmetic shift of 64 bits.
  const std::uint64_t offset = bits_as<std::uint64_t>(v) - kSqrtHalf + (std::uint64_t{1024} << 52);
  const auto exponent = static_cast<std::int32_t>(offset >> 52) - 1024;
  const auto kf = static_cast<double>(exponent);
  const std::uint64_t fraction = (offset & 0xfffffffffffff) + kSqrtHalf;
  const double m = bits_as<double>(fraction);
  const double f = (m - 1.0) / (m + 1.0);
  return kf * kLn2High + (f * polynomial(kAtanh, f * f) + kf * kLn2Low);
}

}  // namespace modtree::kernels
