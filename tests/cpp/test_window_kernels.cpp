// SPDX-License-Identifier: BSD-3-Clause
// Kernels on windows of images against plain loops in double precision.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "kernels/convolution.h"
#include "kernels/depthwise.h"
#include "kernels/im2col.h"
#include "kernels/max_pool.h"
#include "kernels/thread_count.h"
#include "samples.h"

namespace {

using namespace modtree::kernels;
using Index = std::ptrdiff_t;

template <class T>
double tolerance() {
  return sizeof(T) == 4 ? 3e-6 : 1e-12;
}

template <class T>
double at(const std::vector<T> &v, Index i) {
  return static_cast<double>(v[static_cast<std::size_t>(i)]);
}

template <class T>
void check_windows() {
  const Index height = 7, width = 37, images = 2, channels = 3;
  const auto x = values<T>(images * channels * height * width, 1);
  for (const WindowAxis &columns :
       {WindowAxis{width, 3, 1, 1, 1, 37}, WindowAxis{width, 2, 2, 0, 1, 18},
        WindowAxis{width, 3, 3, 1, 2, 12}, WindowAxis{width, 1, 5, 0, 1, 8},
        WindowAxis{width, 6, 1, 0, 1, 32}, WindowAxis{width, 7, 2, 1, 1, 16}}) {
    const WindowAxis rows{height, 3, 2, 1, 1, 4};
    const Index windows = rows.out * columns.out, depth = channels * rows.kernel * columns.kernel;
    std::vector<T> best(static_cast<std::size_t>(images * channels * windows));
    std::vector<std::int64_t> places(best.size());
    max_pool(MaxPool<T>{x.data(), best.data(), places.data(), images * channels, rows, columns});
    std::vector<T> matrix(static_cast<std::size_t>(images * depth * windows));
    auto image = x;
    im2col(Columns<T>{image.data(), matrix.data(), images, channels, rows, columns, depth * windows,
                      windows});
    std::vector<double> sums(x.size());
    for (Index plane = 0; plane < images * channels; ++plane) {
      for (Index o = 0; o < windows; ++o) {
        double largest = -std::numeric_limits<double>::infinity();
        Index where = -1;
        for (Index k = 0; k < rows.kernel * columns.kernel; ++k) {
          const Index r =
              o / columns.out * rows.stride - rows.padding + k / columns.kernel * rows.dilation;
          const Index c = o % columns.out * columns.stride - columns.padding +
                          k % columns.kernel * columns.dilation;
          const bool inside = r >= 0 && r < height && c >= 0 && c < width;
          const Index i = (plane * height + r) * width + c;
          const double v = inside ? at(x, i) : 0.0;
          CHECK(at(matrix, (plane * rows.kernel * columns.kernel + k) * windows + o) == v);
          if (inside) {
            sums[static_cast<std::size_t>(i)] += v;
            if (v > largest) {
              largest = v;
              where = r * width + c;
            }
          }
        }
        CHECK(at(best, plane * windows + o) == largest);
        CHECK(places[static_cast<std::size_t>(plane * windows + o)] == where);
      }
    }
    col2im(Columns<T>{image.data(), matrix.data(), images, channels, rows, columns, depth * windows,
                      windows});
    for (std::size_t i = 0; i < sums.size(); ++i) {
      CHECK(close(image[i], sums[i]));
    }
    std::vector<T> back(x.size());
    Inside inside{true};
    max_pool_backward(MaxPoolBackward<T>{best.data(), places.data(), back.data(), images * channels,
                                         windows, height * width, &inside});
    CHECK(inside);
    double total = 0.0, expected = 0.0;
    for (Index i = 0; i < static_cast<Index>(best.size()); ++i) {
      expected += at(best, i);
    }
    for (Index i = 0; i < static_cast<Index>(back.size()); ++i) {
      total += at(back, i);
    }
    CHECK(std::fabs(total - expected) <= tolerance<T>() * 1000);
  }
}

template <class T>
void check_depthwise() {
  const Index height = 7, width = 37, images = 2, groups = 3, multiplier = 2;
  const auto x = values<T>(images * groups * height * width, 1);
  for (const WindowAxis &columns :
       {WindowAxis{width, 3, 1, 1, 1, 37}, WindowAxis{width, 2, 2, 0, 1, 18},
        WindowAxis{width, 3, 3, 1, 2, 12}, WindowAxis{width, 1, 5, 0, 1, 8},
        WindowAxis{width, 6, 1, 0, 1, 32}, WindowAxis{width, 7, 2, 1, 1, 16}}) {
    const WindowAxis rows{height, 3, 2, 1, 1, 4};
    const Index windows = rows.out * columns.out, taps = rows.kernel * columns.kernel;
    const auto weight = values<T>(groups * multiplier * taps, 2),
               g = values<T>(images * groups * multiplier * windows, 3);
    std::vector<double> y(g.size()), dx(x.size()), dweight(weight.size());
    for (Index plane = 0; plane < images * groups * multiplier; ++plane) {
      const Index filter = plane % (groups * multiplier);
      for (Index o = 0; o < windows; ++o) {
        for (Index k = 0; k < taps; ++k) {
          const Index r =
              o / columns.out * rows.stride - rows.padding + k / columns.kernel * rows.dilation;
          const Index c = o % columns.out * columns.stride - columns.padding +
                          k % columns.kernel * columns.dilation;
          if (r < 0 || r >= height || c < 0 || c >= width) {
            continue;
          }
          const Index i = (plane / multiplier * height + r) * width + c,
                      at_weight = filter * taps + k;
          const Index at_y = plane * windows + o;
          y[static_cast<std::size_t>(at_y)] += at(x, i) * at(weight, at_weight);
          dx[static_cast<std::size_t>(i)] += at(g, at_y) * at(weight, at_weight);
          dweight[static_cast<std::size_t>(at_weight)] += at(g, at_y) * at(x, i);
        }
      }
    }
    auto x_copy = x, weight_copy = weight, g_copy = g;
    std::vector<T> got_y(g.size()), got_dx(x.size()), got_dweight(weight.size());
    depthwise(Depthwise<T>{x_copy.data(), weight_copy.data(), got_y.data(), images, groups,
                           multiplier, rows, columns});
    depthwise_transposed(Depthwise<T>{got_dx.data(), weight_copy.data(), g_copy.data(), images,
                                      groups, multiplier, rows, columns});
    depthwise_weight(Depthwise<T>{x_copy.data(), got_dweight.data(), g_copy.data(), images, groups,
                                  multiplier, rows, columns});
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK(std::fabs(static_cast<double>(got_y[i]) - y[i]) <= tolerance<T>() * 10);
    }
    for (std::size_t i = 0; i < dx.size(); ++i) {
      CHECK(std::fabs(static_cast<double>(got_dx[i]) - dx[i]) <= tolerance<T>() * 10);
    }
    for (std::size_t i = 0; i < dweight.size(); ++i) {
      CHECK(std::fabs(static_cast<double>(got_dweight[i]) - dweight[i]) <= tolerance<T>() * 100);
    }
  }
}

// With all instructions that the machine has.
template <class T>
void check_convolution() {
  const Index height = 7, width = 37, images = 2, groups = 2, channels = 60, outputs = 11;
  const auto x = values<T>(images * groups * channels * height * width, 1);
  for (const WindowAxis &columns :
       {WindowAxis{width, 3, 1, 1, 1, 37}, WindowAxis{width, 2, 2, 0, 1, 18},
        WindowAxis{width, 3, 3, 1, 2, 12}, WindowAxis{width, 1, 5, 0, 1, 8},
        WindowAxis{width, 6, 1, 0, 1, 32}, WindowAxis{width, 7, 2, 1, 1, 16}}) {
    const WindowAxis rows{height, 3, 2, 1, 1, 4};
    const Index windows = rows.out * columns.out, taps = rows.kernel * columns.kernel;
    const Index depth = channels * taps;
    const auto weight = values<T>(groups * outputs * depth, 2),
               bias = values<T>(groups * outputs, 3);
    const Index total = images * groups * outputs * windows;
    std::vector<double> y(static_cast<std::size_t>(total));
    for (Index i = 0; i < total; ++i) {
      const Index o = i % windows, row = i / windows, output = row % (groups * outputs);
      const Index first = row / outputs * channels;
      double sum = at(bias, output);
      for (Index k = 0; k < depth; ++k) {
        const Index r = o / columns.out * rows.stride - rows.padding +
                        k % taps / columns.kernel * rows.dilation;
        const Index c = o % columns.out * columns.stride - columns.padding +
                        k % columns.kernel * columns.dilation;
        if (r >= 0 && r < height && c >= 0 && c < width) {
          sum +=
              at(weight, output * depth + k) * at(x, ((first + k / taps) * height + r) * width + c);
        }
      }
      y[static_cast<std::size_t>(i)] = sum;
    }
    for (const Isa each : {Isa::baseline, Isa::avx2, Isa::avx512}) {
      if (each > isa()) {
        continue;
      }
      std::vector<T> got(y.size());
      convolution_with(each, Convolution<T>{x.data(), weight.data(), bias.data(), got.data(),
                                            images, groups, channels, outputs, rows, columns});
      for (std::size_t i = 0; i < y.size(); ++i) {
        CHECK(std::fabs(static_cast<double>(got[i]) - y[i]) <= tolerance<T>() * 30);
      }
    }
  }
}

// The same bits with any number of threads, each of which ThreadSanitizer can follow. The shapes
// are shared out by panels, by images, and with panels that several threads read.
template <class T>
void check_threads_of_convolution() {
  struct Case {
    Index images, channels, outputs, size;
  };
  for (const Case &c :
       {Case{1, 512, 96, 7}, Case{1, 300, 33, 9}, Case{1, 64, 64, 28}, Case{1, 48, 80, 40},
        Case{16, 16, 17, 16}, Case{5, 24, 20, 14}, Case{2, 100, 9, 30}}) {
    const WindowAxis axis{c.size, 3, 1, 1, 1, c.size};
    const auto x = values<T>(c.images * c.channels * c.size * c.size, 1);
    const auto weight = values<T>(c.outputs * c.channels * 9, 2), bias = values<T>(c.outputs, 3);
    std::vector<T> expected(static_cast<std::size_t>(c.images * c.outputs * c.size * c.size));
    std::vector<T> got(expected.size());
    Convolution<T> a{
        x.data(),  weight.data(), bias.data(), expected.data(), c.images, 1, c.channels,
        c.outputs, axis,          axis};
    set_thread_count(1);
    convolution(a);
    a.y = got.data();
    for (const Index threads : {2, 3, 5}) {
      set_thread_count(threads);
      convolution(a);
      CHECK(got == expected);
    }
  }
}

template <class T>
void check_all() {
  check_threads_of_convolution<T>();
  check_windows<T>();
  check_convolution<T>();
  check_depthwise<T>();
}

}  // namespace

int main() {
  check_all<float>();
  check_all<double>();
  return 0;
}
