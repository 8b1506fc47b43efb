// SPDX-License-Identifier: BSD-3-Clause
// Each kernel against a plain double-precision loop, at sizes around the vector widths, and with
// NaN and infinities.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/softmax.h"

namespace {

using namespace modtree::kernels;

const double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::ptrdiff_t kSizes[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 100, 384, 1023, 1025, 5000};

// Values in [-scale, scale) from a fixed linear congruential generator.
template <class T>
std::vector<T> values(std::ptrdiff_t n, double scale) {
  std::vector<T> out(static_cast<std::size_t>(n));
  std::uint32_t state = 12345;
  for (auto &v : out) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<T>(scale * (static_cast<double>(state >> 8) / 8388608.0 - 1.0));
  }
  return out;
}

bool close(double got, double expected, double tolerance) {
  if (std::isnan(expected) || std::isnan(got)) {
    return std::isnan(expected) && std::isnan(got);
  }
  if (std::isinf(expected) || std::isinf(got)) {
    return got == expected;
  }
  return std::fabs(got - expected) <= tolerance * (1.0 + std::fabs(expected));
}

double exact_gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

double tanh_gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

template <class T, class Reference>
void check_elementwise(void (*kernel)(const T *, T *, std::ptrdiff_t), Reference reference,
                       double tolerance) {
  for (double scale : {0.01, 1.0, 6.0, 40.0}) {
    for (std::ptrdiff_t n : kSizes) {
      auto x = values<T>(n, scale);
      std::vector<T> out(x.size());
      kernel(x.data(), out.data(), n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        CHECK(close(out[i], reference(static_cast<double>(x[i])), tolerance));
      }
      kernel(x.data(), x.data(), n);  // in place
      CHECK(x == out);
    }
  }
  // 0 and infinities keep their places; enough copies that the vector loop sees them too.
  const double special[] = {0.0, kInf, -kInf, kNaN, -30.0, 30.0};
  const double expected[] = {0.0, kInf, kNaN, kNaN, 0.0, 30.0};
  std::vector<T> x;
  for (int copy = 0; copy < 12; ++copy) {
    for (double v : special) {
      x.push_back(static_cast<T>(v));
    }
  }
  std::vector<T> out(x.size());
  kernel(x.data(), out.data(), static_cast<std::ptrdiff_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(close(out[i], expected[i % 6], 1e-12));
  }
}

template <class T>
std::vector<double> reference_softmax(const std::vector<T> &x, bool log) {
  double largest = -kInf;
  for (T v : x) {
    largest = std::isnan(v) || v > largest ? static_cast<double>(v) : largest;
  }
  double sum = 0.0;
  for (T v : x) {
    sum += std::exp(static_cast<double>(v) - largest);
  }
  std::vector<double> out;
  for (T v : x) {
    const double shifted = static_cast<double>(v) - largest;
    out.push_back(log ? shifted - std::log(sum) : std::exp(shifted) / sum);
  }
  return out;
}

template <class T>
void check_softmax(void (*kernel)(const T *, T *, std::ptrdiff_t, std::ptrdiff_t), bool log,
                   double tolerance) {
  for (double scale : {0.1, 5.0, 80.0}) {
    for (std::ptrdiff_t n : kSizes) {
      const auto x = values<T>(3 * n, scale);
      std::vector<T> out(x.size());
      kernel(x.data(), out.data(), 3, n);
      for (std::ptrdiff_t row = 0; row < 3; ++row) {
        const std::vector<T> one(x.begin() + row * n, x.begin() + (row + 1) * n);
        const auto expected = reference_softmax(one, log);
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          CHECK(close(out[static_cast<std::size_t>(row * n + i)],
                      expected[static_cast<std::size_t>(i)], tolerance));
        }
      }
    }
  }
  for (std::size_t n : {std::size_t{3}, std::size_t{16}, std::size_t{65}}) {
    const auto length = static_cast<std::ptrdiff_t>(n);
    std::vector<T> x(n, T(1)), out(n);
    x[1] = static_cast<T>(-kInf);
    kernel(x.data(), out.data(), 1, length);
    CHECK(out[1] == (log ? static_cast<T>(-kInf) : T(0)));  // a masked entry is exactly 0
    CHECK(close(out[0],
                log ? -std::log(static_cast<double>(n - 1)) : 1.0 / static_cast<double>(n - 1),
                tolerance));
    for (double poison : {kInf, kNaN, -kNaN}) {
      x[2] = static_cast<T>(poison);
      kernel(x.data(), out.data(), 1, length);
      CHECK(std::isnan(out[2]));
      CHECK(std::isnan(out[0]));
    }
    x.assign(n, static_cast<T>(-kInf));
    kernel(x.data(), out.data(), 1, length);
    for (T v : out) {
      CHECK(std::isnan(v));
    }
  }
  kernel(nullptr, nullptr, 4, 0);  // rows of nothing
}

template <class T>
void check_layer_norm(double tolerance) {
  for (double scale : {1.0, 50.0}) {
    for (std::ptrdiff_t n : kSizes) {
      const auto x = values<T>(2 * n, scale);
      const auto weight = values<T>(n, 2.0);
      const auto bias = values<T>(n, 3.0);
      std::vector<T> out(x.size());
      for (int given = 0; given < 4; ++given) {
        const T *w = given & 1 ? weight.data() : nullptr;
        const T *b = given & 2 ? bias.data() : nullptr;
        layer_norm(x.data(), w, b, out.data(), nullptr, nullptr, 2, n, 1e-5);
        for (std::ptrdiff_t row = 0; row < 2; ++row) {
          const T *from = x.data() + row * n;
          double mean = 0.0, variance = 0.0;
          for (std::ptrdiff_t i = 0; i < n; ++i) {
            mean += static_cast<double>(from[i]) / static_cast<double>(n);
          }
          for (std::ptrdiff_t i = 0; i < n; ++i) {
            variance += (from[i] - mean) * (from[i] - mean) / static_cast<double>(n);
          }
          // The mean is rounded to T: a row far from 0 with a small spread loses that much.
          const double condition = 1.0 + std::fabs(mean) / std::sqrt(variance + 1e-5);
          for (std::ptrdiff_t i = 0; i < n; ++i) {
            double y = (from[i] - mean) / std::sqrt(variance + 1e-5);
            y = w ? y * static_cast<double>(w[i]) : y;
            const double shift = b ? static_cast<double>(b[i]) : 0.0;
            // The two may cancel; what is rounded are the terms.
            const double size = 1.0 + std::fabs(y) + std::fabs(shift);
            const double error =
                std::fabs(out[static_cast<std::size_t>(row * n + i)] - (y + shift));
            CHECK(error <= tolerance * condition * size);
          }
        }
      }
    }
  }
  for (double poison : {kInf, -kInf, kNaN}) {
    std::vector<T> x(20, T(1)), out(20);
    x[3] = static_cast<T>(poison);
    layer_norm(x.data(), nullptr, nullptr, out.data(), nullptr, nullptr, 1, 20, 1e-5);
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[3]));
  }
  layer_norm(static_cast<const T *>(nullptr), nullptr, nullptr, nullptr, nullptr, nullptr, 4, 0,
             1e-5);
}

}  // namespace

int main() {
  check_elementwise<float>(gelu, exact_gelu, 2e-7);
  check_elementwise<double>(gelu, exact_gelu, 1e-15);
  check_elementwise<float>(gelu_tanh, tanh_gelu, 3e-7);
  check_elementwise<double>(gelu_tanh, tanh_gelu, 1e-15);
  check_softmax<float>(softmax, false, 3e-7);
  check_softmax<double>(softmax, false, 1e-15);
  check_softmax<float>(log_softmax, true, 3e-7);
  check_softmax<double>(log_softmax, true, 1e-15);
  check_layer_norm<float>(1e-6);
  check_layer_norm<double>(1e-13);
  return 0;
}
