// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/group_norm.h"

#include <cmath>
#include <vector>

#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void group_norm_all(const GroupNorm<T> &a) {
  const std::ptrdiff_t n = a.positions, size = a.width * n;
  for (std::ptrdiff_t row = 0; row < a.images * a.groups; ++row) {
    if (size == 0) {
      a.mean[row] = a.rstd[row] = T(0);
      continue;
    }
    const T *start = a.x + row * size;
    const auto count = static_cast<double>(size);
    const auto mean =
        static_cast<T>(block_sum<T>(size, [=](std::ptrdiff_t i) { return start[i]; }) / count);
    const double squares =
        block_sum<T>(size, [=](std::ptrdiff_t i) { return (start[i] - mean) * (start[i] - mean); });
    const auto rstd = static_cast<T>(1.0 / std::sqrt(squares / count + a.eps));
    a.mean[row] = mean;
    a.rstd[row] = rstd;
    for (std::ptrdiff_t j = 0; j < a.width; ++j) {
      const std::ptrdiff_t channel = row % a.groups * a.width + j;
      const T scale = a.weight ? rstd * a.weight[channel] : rstd,
              shift = a.bias ? a.bias[channel] : T(0);
      const T *__restrict x = start + j * n;
      T *__restrict out = a.out + row * size + j * n;
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        out[i] = (x[i] - mean) * scale + shift;
      }
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void group_norm_backward_all(const GroupNormBackward<T> &a) {
  const std::ptrdiff_t n = a.positions, size = a.width * n, channels = a.groups * a.width;
  std::vector<double> dweight(static_cast<std::size_t>(channels)), dbias(dweight.size());
  for (std::ptrdiff_t row = 0; row < a.images * a.groups; ++row) {
    const std::ptrdiff_t first = row % a.groups * a.width;
    const T mean = a.mean[row], rstd = a.rstd[row];
    // Over the group: the sums of weight * g and of weight * g * (x - mean) * rstd.
    double group_g = 0.0, group_gh = 0.0;
    for (std::ptrdiff_t j = 0; j < a.width; ++j) {
      const T *__restrict g = a.g + row * size + j * n;
      const T *__restrict x = a.x + row * size + j * n;
      double sum_g = 0.0, sum_gd = 0.0;
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
      const double sum_gh = sum_gd * static_cast<double>(rstd);
      const auto channel = static_cast<std::size_t>(first + j);
      const double weight = a.weight ? static_cast<double>(a.weight[channel]) : 1.0;
      dweight[channel] += sum_gh;
      dbias[channel] += sum_g;
      group_g += weight * sum_g;
      group_gh += weight * sum_gh;
    }
    if (!a.dx || size == 0) {
      continue;
    }
    const double share = static_cast<double>(rstd) / static_cast<double>(size);
    const auto constant = static_cast<T>(-group_g * share);
    const auto of_x = static_cast<T>(-group_gh * share * static_cast<double>(rstd));
    for (std::ptrdiff_t j = 0; j < a.width; ++j) {
      const T of_g = a.weight ? rstd * a.weight[first + j] : rstd;
      const T *__restrict g = a.g + row * size + j * n;
      const T *__restrict x = a.x + row * size + j * n;
      T *__restrict dx = a.dx + row * size + j * n;
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        dx[i] = g[i] * of_g + ((x[i] - mean) * of_x + constant);
      }
    }
  }
  for (std::size_t c = 0; c < dweight.size(); ++c) {
    if (a.dweight) {
      a.dweight[c] = static_cast<T>(dweight[c]);
    }
    if (a.dbias) {
      a.dbias[c] = static_cast<T>(dbias[c]);
    }
  }
}

}  // namespace

MODTREE_DEFINE_STRUCT_KERNEL(group_norm, GroupNorm, group_norm_all)
MODTREE_DEFINE_STRUCT_KERNEL(group_norm_backward, GroupNormBackward, group_norm_backward_all)

}  // namespace modtree::kernels
