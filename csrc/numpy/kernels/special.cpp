// SPDX-License-Identifier: BSD-3-Clause
// Everything is computed in double: float results are rounded once, and need fewer terms.
#include "kernels/special.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/parallel_kernel.h"
#include "kernels/strict_math.h"

namespace modtree::kernels {
namespace {

// clang-format off
// Polynomials, constant first, through Chebyshev nodes; the error is below half an ulp of the
// result (of float for names with Single).
//
// erf(x) / x in x^2, for |x| <= 1: kCentre. (1 + 2x) exp(x^2) erfc(x) in (x - 4) / (x + 4), for
// x from 0 to 28 (11): kScaledTail. erfinv(x) / x by w = -log(1 - x^2): kNear in w - 3.125, up to
// w = 6.25; kFar in sqrt(w) - 3.25, up to 4 (4.1); kTail in sqrt(w) - 5, up to 6.1.
constexpr double kNearSingle[] = {
    1.65365456268310271,
    0.240158181308700922,
    -0.00603368315301520668,
    -0.00074069870851445566,
    0.000186759402217233597,
    -0.00001388701969759071,
    -1.37997428444424992e-6,
    4.25662790612532533e-7,
    -2.56528767370327519e-8,
    -4.60764650660978549e-9,
    6.98368073027240989e-10};
constexpr double kFarSingle[] = {
    3.08388560434191293,
    1.00525887285765912,
    0.00537139987313566063,
    -0.00374901255138389343,
    0.00248504595950314852,
    -0.0017015886444045766,
    0.000983943023160507095,
    -0.000327067075389469127,
    -0.0000382713681505458919,
    0.000054983488626209603};
constexpr double kNear[] = {
    1.65365456268310275,
    0.240158182425588324,
    -0.00603367087142784988,
    -0.000740702534154476987,
    0.000186734208024648377,
    -0.0000138825233944053167,
    -1.36546918506035751e-6,
    4.23478817378233926e-7,
    -2.90703822629272664e-8,
    -4.11266082002324008e-9,
    1.05121815398041267e-9,
    -5.41428719808471606e-11,
    -1.29768855265320756e-11,
    2.63048347405604415e-12,
    -8.11839944307435319e-14,
    -4.00123773509189586e-14,
    6.59640771242083411e-15,
    -4.02821543276617422e-17,
    -1.30169280167964449e-16,
    1.55743202462332522e-17,
    1.15002225206625297e-18,
    -3.49960443547541778e-19,
    -1.11348376983270194e-21,
    3.24070445937990191e-21};
constexpr double kFar[] = {
    3.08388561049222063,
    1.0052589676941653,
    0.00537091455357167963,
    -0.0037512085082155611,
    0.0024914420969817609,
    -0.00168827553573370721,
    0.000953289363743563718,
    -0.000355037809759638111,
    0.0000240312570150925236,
    0.0000682870865475337668,
    -0.0000473189841201124549,
    0.0000124651671570872518,
    2.92572919017898247e-6,
    -3.98608439521475595e-6,
    1.49871307841861263e-6,
    -2.70042192808689465e-8,
    -2.71345110543945614e-7,
    1.31043514999720141e-7,
    6.96924197762969404e-10,
    -1.51026954233350641e-8};
constexpr double kTail[] = {
    4.8499064014085843,
    1.01030046486454541,
    -0.000138719318373516975,
    -0.000215030119830246938,
    0.0000759952779202493987,
    -0.0000196817706769492527,
    4.52605432855967119e-6,
    -9.93029477498288544e-7,
    2.29043627413690386e-7,
    -6.75560303537366062e-8,
    2.90449093207894741e-8,
    -1.52551601812926299e-8,
    7.77742853982663462e-9,
    -3.47143793389671895e-9,
    1.35893653415770925e-9,
    -4.37388966373406935e-10,
    4.69773034459628236e-11,
    4.28024330373094211e-11,
    -1.54392781972083416e-11};
constexpr double kScaledTailSingle[] = {
    1.23299513464553084,
    -0.139620936241706306,
    0.0153775926455677988,
    0.0680883990173880212,
    -0.101001429790833675,
    0.0938634878687463396,
    -0.0665093781902681159,
    0.0363834737126695797,
    -0.0162923570790433195,
    0.00659800250367426874,
    0.000742842784909937229};
constexpr double kScaledTail[] = {
    1.23299511862555251,
    -0.139621116840562894,
    0.0153796521026207413,
    0.0680970542547373239,
    -0.101039066036352132,
    0.0937328349967941159,
    -0.0663303658115293841,
    0.037167515562492866,
    -0.0161977340591150071,
    0.00503196975589542611,
    -0.000757773341413330045,
    -0.000199255507556149521,
    0.000150622243948302992,
    -0.000024403169244974075,
    -0.0000112247891351547007,
    5.7178872846321852e-6,
    3.01350499448753948e-7,
    -8.35161968869684708e-7,
    6.27072715719831088e-8,
    1.15349437457541573e-7,
    -7.71541861441783013e-9,
    -1.36709898633473824e-8,
    -1.82060986803086833e-9};
constexpr double kCentreSingle[] = {
    1.12837916584835095,
    -0.37612626666720331,
    0.112835947151602177,
    -0.0268542120106264124,
    0.00518908742343397399,
    -0.000801686428716586953,
    0.0000787587506268548834};
constexpr double kCentre[] = {
    1.12837916709551257,
    -0.376126389031835404,
    0.112837916709450063,
    -0.0268661706432377704,
    0.00522397760711642273,
    -0.000854832597538969208,
    0.000120552949048397079,
    -0.0000149247369074196603,
    1.64474247033173624e-6,
    -1.62084838018717059e-7,
    1.37200645467776856e-8,
    -7.79589882700214224e-10};
// clang-format on

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
MODTREE_ALWAYS_INLINE void lgamma_loop(const T *x, T *out, std::ptrdiff_t n) {
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    out[i] = static_cast<T>(std::lgamma(static_cast<double>(x[i])));
  }
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
MAP_KERNEL(lgamma, lgamma_loop, 40)
MAP_KERNEL(digamma, digamma_loop, 40)
PAIR_KERNEL(logaddexp, logaddexp_loop, 16)
PAIR_KERNEL(fmod, fmod_loop, 12)
PAIR_KERNEL(remainder, remainder_loop, 14)

}  // namespace modtree::kernels
