// SPDX-License-Identifier: BSD-3-Clause
// Kernels that compute where they read and write, against plain loops: a sanitizer sees each
// access.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "kernels/along.h"
#include "kernels/ctc.h"
#include "kernels/distance.h"
#include "kernels/grid_sample.h"
#include "kernels/pointwise.h"
#include "kernels/scan.h"
#include "kernels/select.h"
#include "kernels/special.h"
#include "samples.h"

namespace {

using namespace modtree::kernels;
using Index = std::ptrdiff_t;

const Index kSizes[] = {0, 1, 3, 7, 8, 9, 31, 64, 65, 130, 300};

std::size_t size(Index n) { return static_cast<std::size_t>(n); }

template <class T>
void check_special() {
  for (Index n : kSizes) {
    const auto x = values<T>(n, 1, 6), y = values<T>(n, 2, 3);
    std::vector<T> out(size(n));
    erf(x.data(), out.data(), n);
    for (std::size_t i = 0; i < out.size(); ++i) {
      CHECK(close(out[i], std::erf(static_cast<double>(x[i]))));
    }
    fmod(x.data(), y.data(), out.data(), n);
    for (std::size_t i = 0; i < out.size(); ++i) {
      CHECK(out[i] == std::fmod(x[i], y[i]));
    }
    softplus(x.data(), out.data(), n, T(1), T(20));
    for (std::size_t i = 0; i < out.size(); ++i) {
      CHECK(close(out[i], std::log1p(std::exp(static_cast<double>(x[i])))));
    }
    digamma(x.data(), out.data(), n);
    erfinv(x.data(), out.data(), n);
    logaddexp(x.data(), y.data(), out.data(), n);
    remainder(x.data(), y.data(), out.data(), n);
  }
}

template <class T>
void check_scan() {
  for (Index outer : {1, 9}) {
    for (Index inner : {1, 5, 70}) {
      for (Index n : {0, 1, 6}) {
        const auto x = values<T>(outer * n * inner, 3);
        std::vector<T> out(x.size());
        for (bool reverse : {false, true}) {
          scan(Scan<T>{x.data(), out.data(), outer, n, inner, false, reverse});
          for (Index row = 0; row < outer; ++row) {
            for (Index column = 0; column < inner; ++column) {
              double total = 0;
              for (Index step = 0; step < n; ++step) {
                const Index i = reverse ? n - 1 - step : step;
                const std::size_t at = size((row * n + i) * inner + column);
                total += static_cast<double>(x[at]);
                CHECK(close(out[at], total));
              }
            }
          }
        }
      }
    }
  }
}

template <class T>
void check_select() {
  for (Index n : {1, 2, 40, 1000}) {
    for (Index k : {Index{0}, Index{1}, n / 3, n - 1, n}) {
      const Index outer = 2, inner = 3;
      const auto x = values<T>(outer * n * inner, 4);
      std::vector<std::int64_t> top(size(outer * k * inner));
      top_indices(Select<T>{x.data(), top.data(), outer, n, inner, k, true});
      std::vector<T> sorted;
      for (Index i = 0; i < n; ++i) {
        sorted.push_back(x[size(i * inner)]);
      }
      std::sort(sorted.begin(), sorted.end());
      for (Index i = 0; i < k; ++i) {
        CHECK(x[size(top[size(i * inner)] * inner)] == sorted[size(n - 1 - i)]);
      }
    }
  }
}

void check_along() {
  // (2, 3) of a (4, 3) array along axis 0, and an index that is out of range.
  const std::vector<double> x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<std::int64_t> index = {3, 0, 2, 1, 3, 3};
  Along a{};
  a.ndim = 2;
  a.shape[0] = 2;
  a.shape[1] = 3;
  a.index_strides[0] = a.other_strides[0] = 3;
  a.index_strides[1] = a.other_strides[1] = a.outer_strides[1] = 1;
  a.axis_stride = 3;
  a.axis_size = 4;
  a.index = index.data();
  std::vector<double> out(6);
  CHECK(gather(a, sizeof(double), x.data(), out.data()));
  CHECK((out == std::vector<double>{9, 1, 8, 3, 10, 11}));
  std::vector<double> sum(12);
  CHECK(scatter(a, ScatterMode::add, out.data(), sum.data()));
  CHECK((sum == std::vector<double>{0, 1, 0, 3, 0, 0, 0, 0, 8, 9, 10, 11}));
  CHECK(scatter_assign(a, sizeof(double), out.data(), sum.data()));
  for (std::int64_t wrong : {std::int64_t{4}, std::int64_t{-1}}) {
    index[5] = wrong;
    CHECK(!gather(a, sizeof(double), x.data(), out.data()));
    CHECK(!scatter(a, ScatterMode::largest, out.data(), sum.data()));
    CHECK(!scatter_assign(a, sizeof(double), out.data(), sum.data()));
  }
}

template <class T>
void check_distance() {
  for (Norm norm : {Norm::zero, Norm::one, Norm::two, Norm::infinity, Norm::other}) {
    for (Index rows : {0, 1, 5}) {
      for (Index columns : {0, 1, 6, 67}) {
        const Index width = 3;
        const auto x = values<T>(rows * width, 5), y = values<T>(width * columns, 6);
        std::vector<T> out(size(rows * columns)), dx(x.size()), dy(y.size());
        distance(Distance<T>{x.data(), y.data(), out.data(), rows, columns, width, norm, 3.0});
        distance_backward(DistanceBackward<T>{out.data(), out.data(), x.data(), y.data(), dx.data(),
                                              dy.data(), rows, columns, width, norm, 3.0});
        for (Index i = 0; norm == Norm::two && i < rows * columns; ++i) {
          double sum = 0;
          for (Index m = 0; m < width; ++m) {
            const double d = static_cast<double>(x[size(i / columns * width + m)]) -
                             static_cast<double>(y[size(m * columns + i % columns)]);
            sum += d * d;
          }
          CHECK(close(out[size(i)], std::sqrt(sum)));
        }
      }
    }
  }
}

template <class T>
void check_grid_sample() {
  const double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (int dims : {2, 3}) {
    const Index points = 70, plane = dims == 2 ? 6 : 12;
    const auto x = values<T>(2 * 3 * plane, 7);
    auto grid = values<T>(2 * points * dims, 8, 1.5);
    for (std::size_t i = 0; i < 4; ++i) {
      grid[10 + i] = static_cast<T>(i == 0 ? kNaN : i == 1 ? 1e30 : i == 2 ? -1e30 : 1.0);
    }
    for (auto mode : {Interpolation::nearest, Interpolation::linear, Interpolation::cubic}) {
      for (auto outside : {Outside::zeros, Outside::border, Outside::reflection}) {
        if (mode == Interpolation::cubic && dims == 3) {
          continue;
        }
        std::vector<T> out(size(2 * 3 * points)), dx(x.size()), dgrid(grid.size());
        GridSample<T> a{x.data(), grid.data(), out.data(), 2,    3,  points, {2, 3, 2},
                        dims,     mode,        outside,    true, {}, {},     {}};
        set_packed_strides(a);
        grid_sample(a);
        a.out = nullptr;
        grid_sample_backward(GridSampleBackward<T>{a, out.data(), dx.data(), dgrid.data()});
        grid_sample_backward(GridSampleBackward<T>{a, out.data(), nullptr, nullptr});
      }
    }
  }
}

template <class T>
void check_ctc() {
  // One label in two steps: "11", "1-", "-1".
  const Index steps = 2, batch = 3, classes = 2;
  const std::vector<T> log_probs(size(steps * batch * classes), static_cast<T>(std::log(0.5)));
  const std::vector<std::int64_t> labels = {1, 1, 1}, starts = {0, 1, 3}, lengths = {1, 2, 0},
                                  used = {2, 2, 0};
  std::vector<T> losses(3), g(3, T(1)), gradient(log_probs.size());
  ctc(Ctc<T>{log_probs.data(), labels.data(), starts.data(), lengths.data(), used.data(),
             losses.data(), g.data(), gradient.data(), steps, batch, classes, 2, 0});
  CHECK(close(losses[0], -std::log(0.75)));
  CHECK(std::isinf(losses[1]));
  CHECK(losses[2] == 0);
  CHECK(close(gradient[0], -1.0 / 3));
  CHECK(close(gradient[1], -2.0 / 3));
  CHECK(gradient[2] == 0);
}

}  // namespace

int main() {
  check_special<float>();
  check_special<double>();
  check_scan<float>();
  check_scan<double>();
  check_select<float>();
  check_select<double>();
  check_along();
  check_distance<float>();
  check_distance<double>();
  check_grid_sample<float>();
  check_grid_sample<double>();
  check_ctc<float>();
  check_ctc<double>();
  return 0;
}
