// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/batch_norm.h"

#include <cmath>
#include <vector>

#include "kernels/parallel_kernel.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

// Without positions (a matrix of images x channels) loops run along the channels, else along the
// positions of one channel of one image.

template <class T>
MODTREE_ALWAYS_INLINE void matrix_statistics(const BatchNorm<T> &a, std::ptrdiff_t first,
                                             std::ptrdiff_t n) {
  const auto count = static_cast<double>(a.images);
  ColumnSum<T> sums(static_cast<std::size_t>(n));
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict x = a.x + image * a.channels + first;
    T *__restrict sum = sums.row();
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      sum[i] += x[i];
    }
  }
  const double *totals = sums.totals();
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    a.mean[first + i] = static_cast<T>(totals[i] / count);
  }
  ColumnSum<T> squares(static_cast<std::size_t>(n));
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict x = a.x + image * a.channels + first;
    const T *__restrict mean = a.mean + first;
    T *__restrict sum = squares.row();
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      sum[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
    }
  }
  totals = squares.totals();
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    a.var[first + i] = static_cast<T>(totals[i] / count);
    a.rstd[first + i] = static_cast<T>(1.0 / std::sqrt(totals[i] / count + a.eps));
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void channel_statistics(const BatchNorm<T> &a, std::ptrdiff_t channel) {
  const std::ptrdiff_t n = a.positions, step = a.channels * n;
  const T *start = a.x + channel * n;
  const auto count = static_cast<double>(a.images) * static_cast<double>(n);
  double sum = 0.0;
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *x = start + image * step;
    sum += block_sum<T>(n, [=](std::ptrdiff_t i) { return x[i]; });
  }
  const auto mean = static_cast<T>(sum / count);
  sum = 0.0;
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *x = start + image * step;
    sum += block_sum<T>(n, [=](std::ptrdiff_t i) { return (x[i] - mean) * (x[i] - mean); });
  }
  a.mean[channel] = mean;
  a.var[channel] = static_cast<T>(sum / count);
  a.rstd[channel] = static_cast<T>(1.0 / std::sqrt(sum / count + a.eps));
}

template <class T>
MODTREE_ALWAYS_INLINE void given_statistics(const BatchNorm<T> &a, std::ptrdiff_t channel) {
  a.rstd[channel] = static_cast<T>(1.0 / std::sqrt(static_cast<double>(a.var[channel]) + a.eps));
}

template <class T>
MODTREE_ALWAYS_INLINE void norm_channel(const BatchNorm<T> &a, std::ptrdiff_t c) {
  const std::ptrdiff_t n = a.positions, step = a.channels * n;
  if (a.training) {
    channel_statistics(a, c);
  } else {
    given_statistics(a, c);
  }
  const T mean = a.mean[c], scale = a.weight ? a.rstd[c] * a.weight[c] : a.rstd[c];
  const T shift = a.bias ? a.bias[c] : static_cast<T>(0);
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict x = a.x + c * n + image * step;
    T *__restrict out = a.out + c * n + image * step;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      out[i] = (x[i] - mean) * scale + shift;
    }
  }
}

// The channels [first, first + n) of a matrix.
template <class T>
MODTREE_ALWAYS_INLINE void norm_matrix(const BatchNorm<T> &a, std::ptrdiff_t first,
                                       std::ptrdiff_t n) {
  if (a.training) {
    matrix_statistics(a, first, n);
  } else {
    for (std::ptrdiff_t c = first; c < first + n; ++c) {
      given_statistics(a, c);
    }
  }
  std::vector<T> scales(a.rstd + first, a.rstd + first + n), shifts(static_cast<std::size_t>(n));
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const auto c = static_cast<std::size_t>(i);
    scales[c] *= a.weight ? a.weight[first + i] : static_cast<T>(1);
    shifts[c] = a.bias ? a.bias[first + i] : static_cast<T>(0);
  }
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict x = a.x + image * a.channels + first;
    const T *__restrict mean = a.mean + first;
    const T *__restrict scale = scales.data();
    const T *__restrict shift = shifts.data();
    T *__restrict out = a.out + image * a.channels + first;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      out[i] = (x[i] - mean[i]) * scale[i] + shift[i];
    }
  }
}

// The parts of the work: channels, or so many neighbouring ones of a matrix.
constexpr std::ptrdiff_t kChannels = 128;

template <class Arguments>
std::ptrdiff_t parts(const Arguments &a) {
  return a.positions == 1 ? (a.channels + kChannels - 1) / kChannels : a.channels;
}

template <class Arguments>
double part_work(const Arguments &a) {
  const auto each = static_cast<double>(a.positions == 1 ? kChannels : a.positions);
  return 3.0 * static_cast<double>(a.images) * each + 32.0;
}

// The end of the channels of a matrix that are the parts before `last`.
template <class Arguments>
MODTREE_ALWAYS_INLINE std::ptrdiff_t end_of_parts(const Arguments &a, std::ptrdiff_t last) {
  return last * kChannels < a.channels ? last * kChannels : a.channels;
}

template <class T>
MODTREE_ALWAYS_INLINE void some_channels(const BatchNorm<T> &a, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  if (a.positions == 1) {
    norm_matrix(a, first * kChannels, end_of_parts(a, last) - first * kChannels);
    return;
  }
  for (std::ptrdiff_t c = first; c < last; ++c) {
    norm_channel(a, c);
  }
}

// The coefficients of dx = a g + b (x - mean) + c for one channel, from the sums of g and of g (x -
// mean) rstd.
template <class T>
struct InputGradient {
  T of_g, of_x, constant;

  MODTREE_ALWAYS_INLINE InputGradient(T rstd, T weight, double sum_g, double sum_gh, double count,
                                      bool training)
      : of_g(rstd * weight),
        of_x(training ? static_cast<T>(-sum_gh / count * static_cast<double>(rstd * rstd * weight))
                      : static_cast<T>(0)),
        constant(training ? static_cast<T>(-sum_g / count * static_cast<double>(rstd * weight))
                          : static_cast<T>(0)) {}
};

template <class T>
MODTREE_ALWAYS_INLINE void matrix_backward(const BatchNormBackward<T> &a, std::ptrdiff_t first,
                                           std::ptrdiff_t n) {
  const auto size = static_cast<std::size_t>(n);
  ColumnSum<T> sums_g(size), sums_gh(size);
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict g = a.g + image * a.channels + first;
    const T *__restrict x = a.x + image * a.channels + first;
    const T *__restrict mean = a.mean + first;
    const T *__restrict rstd = a.rstd + first;
    T *__restrict sum_g = sums_g.row();
    T *__restrict sum_gh = sums_gh.row();
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      sum_g[i] += g[i];
      sum_gh[i] += g[i] * ((x[i] - mean[i]) * rstd[i]);
    }
  }
  if (a.dweight) {
    sums_gh.store(a.dweight + first);
  }
  if (a.dbias) {
    sums_g.store(a.dbias + first);
  }
  if (!a.dx) {
    return;
  }
  const double *total_g = sums_g.totals(), *total_gh = sums_gh.totals();
  std::vector<T> of_g(size), of_x(size), constants(size);
  for (std::size_t c = 0; c < size; ++c) {
    const std::ptrdiff_t channel = first + static_cast<std::ptrdiff_t>(c);
    const InputGradient<T> gradient(a.rstd[channel],
                                    a.weight ? a.weight[channel] : static_cast<T>(1), total_g[c],
                                    total_gh[c], static_cast<double>(a.images), a.training);
    of_g[c] = gradient.of_g;
    of_x[c] = gradient.of_x;
    constants[c] = gradient.constant;
  }
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict g = a.g + image * a.channels + first;
    const T *__restrict x = a.x + image * a.channels + first;
    const T *__restrict mean = a.mean + first;
    const T *__restrict scale_g = of_g.data();
    const T *__restrict scale_x = of_x.data();
    const T *__restrict constant = constants.data();
    T *__restrict dx = a.dx + image * a.channels + first;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      dx[i] = g[i] * scale_g[i] + ((x[i] - mean[i]) * scale_x[i] + constant[i]);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void channel_backward(const BatchNormBackward<T> &a, std::ptrdiff_t channel) {
  const std::ptrdiff_t n = a.positions, step = a.channels * n;
  const T mean = a.mean[channel], rstd = a.rstd[channel];
  double sum_g = 0.0, sum_gd = 0.0;
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict g = a.g + channel * n + image * step;
    const T *__restrict x = a.x + channel * n + image * step;
    for (std::ptrdiff_t start = 0; start < n; start += kBlock) {
      const std::ptrdiff_t stop = n - start < kBlock ? n : start + kBlock;
      T block_g = 0, block_gd = 0;
      for (std::ptrdiff_t i = start; i < stop; ++i) {
        block_g += g[i];
        block_gd += g[i] * (x[i] - mean);
      }
      sum_g += static_cast<double>(block_g);
      sum_gd += static_cast<double>(block_gd);
    }
  }
  const double sum_gh = sum_gd * static_cast<double>(rstd);
  if (a.dweight) {
    a.dweight[channel] = static_cast<T>(sum_gh);
  }
  if (a.dbias) {
    a.dbias[channel] = static_cast<T>(sum_g);
  }
  if (!a.dx) {
    return;
  }
  const auto count = static_cast<double>(a.images) * static_cast<double>(n);
  const InputGradient<T> c(rstd, a.weight ? a.weight[channel] : static_cast<T>(1), sum_g, sum_gh,
                           count, a.training);
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    const T *__restrict g = a.g + channel * n + image * step;
    const T *__restrict x = a.x + channel * n + image * step;
    T *__restrict dx = a.dx + channel * n + image * step;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      dx[i] = g[i] * c.of_g + ((x[i] - mean) * c.of_x + c.constant);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void some_channels(const BatchNormBackward<T> &a, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  if (a.positions == 1) {
    matrix_backward(a, first * kChannels, end_of_parts(a, last) - first * kChannels);
    return;
  }
  for (std::ptrdiff_t c = first; c < last; ++c) {
    channel_backward(a, c);
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(batch_norm, BatchNorm, some_channels, parts(a), part_work(a))
MODTREE_DEFINE_PARTS_KERNEL(batch_norm_backward, BatchNormBackward, some_channels, parts(a),
                            part_work(a))

}  // namespace modtree::kernels
