// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/group_norm.h"

#include <cmath>
#include <vector>

#include "kernels/parallel_kernel.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void group_norm_rows(const GroupNorm<T> &a, std::ptrdiff_t first,
                                           std::ptrdiff_t last) {
  const std::ptrdiff_t n = a.positions, size = a.width * n;
  for (std::ptrdiff_t row = first; row < last; ++row) {
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
MODTREE_ALWAYS_INLINE void group_norm_backward_groups(const GroupNormBackward<T> &a,
                                                      std::ptrdiff_t first_group,
                                                      std::ptrdiff_t last_group) {
  const std::ptrdiff_t n = a.positions, size = a.width * n;
  const std::ptrdiff_t some = last_group - first_group, first_channel = first_group * a.width;
  std::vector<double> dweight(static_cast<std::size_t>(some * a.width)), dbias(dweight.size());
  for (std::ptrdiff_t i = 0; i < a.images * some; ++i) {
    const std::ptrdiff_t group = first_group + i % some, row = i / some * a.groups + group;
    const std::ptrdiff_t first = group * a.width;
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
      const auto channel = static_cast<std::size_t>(first + j - first_channel);
      const double weight = a.weight ? static_cast<double>(a.weight[first + j]) : 1.0;
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
    const std::ptrdiff_t channel = first_channel + static_cast<std::ptrdiff_t>(c);
    if (a.dweight) {
      a.dweight[channel] = static_cast<T>(dweight[c]);
    }
    if (a.dbias) {
      a.dbias[channel] = static_cast<T>(dbias[c]);
    }
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(group_norm, GroupNorm, group_norm_rows, a.images *a.groups,
                            3 * a.width * a.positions + 32)
MODTREE_DEFINE_PARTS_KERNEL(group_norm_backward, GroupNormBackward, group_norm_backward_groups,
                            a.groups,
                            static_cast<double>(a.images) * (4.0 * static_cast<double>(a.width) *
                                                                 static_cast<double>(a.positions) +
                                                             32.0))

}  // namespace modtree::kernels
