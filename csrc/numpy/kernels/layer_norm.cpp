// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel_kernel.h"
#include "kernels/scratch.h"
#include "kernels/vector_math.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void layer_norm_rows(const T *x, const T *weight, const T *bias, T *out,
                                           T *means, T *rstds, std::ptrdiff_t rows,
                                           std::ptrdiff_t n, double eps) {
  if (n == 0) {
    return;
  }
  const auto count = static_cast<double>(n);
  for (std::ptrdiff_t row = 0; row < rows; ++row, x += n, out += n) {
    const T *from = x;
    const auto mean =
        static_cast<T>(block_sum<T>(n, [=](std::ptrdiff_t i) { return from[i]; }) / count);
    const double variance = block_sum<T>(n,
                                         [=](std::ptrdiff_t i) {
                                           const T d = from[i] - mean;
                                           return d * d;
                                         }) /
                            count;
    const auto scale = static_cast<T>(1.0 / std::sqrt(variance + eps));
    if (means) {
      means[row] = mean;
      rstds[row] = scale;
    }
    if (weight && bias) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
      }
    } else if (weight) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        out[i] = (x[i] - mean) * scale * weight[i];
      }
    } else {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        out[i] = (x[i] - mean) * scale + (bias ? bias[i] : static_cast<T>(0));
      }
    }
  }
}

// Rows whose sums are added up by themselves, so many whatever the number of threads is: 64, after
// which sums go to doubles anyway, or a multiple of it that leaves few of these sums.
constexpr std::ptrdiff_t kSumRows = 64, kMostSums = 32;

std::ptrdiff_t rows_of_sum(std::ptrdiff_t rows) {
  return std::max<std::ptrdiff_t>((rows + kSumRows * kMostSums - 1) / (kSumRows * kMostSums), 1) *
         kSumRows;
}

// With h = (x - mean) rstd and u = g weight: dx = rstd (u - mean(u) - h mean(u h)), dweight = sum
// of g h over rows, dbias = sum of g. The last two go to sums_gh and sums_g.
template <class T>
MODTREE_ALWAYS_INLINE void layer_norm_backward_rows(const LayerNormBackward<T> &a,
                                                    std::ptrdiff_t first, std::ptrdiff_t last,
                                                    double *sums_gh, double *sums_g) {
  const std::ptrdiff_t n = a.n;
  const auto size = static_cast<std::size_t>(n);
  const std::vector<T> ones(a.weight ? 0 : size, T(1));
  const T *weight = a.weight ? a.weight : ones.data();
  ColumnSum<T> dweight(size), dbias(size);
  for (std::ptrdiff_t row = first; row < last; ++row) {
    const T *__restrict g = a.g + row * n;
    const T *__restrict x = a.x + row * n;
    const T *__restrict w = weight;
    T *__restrict sum_gh = dweight.row();
    T *__restrict sum_g = dbias.row();
    const T mean = a.mean[row], rstd = a.rstd[row];
    double total_u = 0.0, total_uh = 0.0;
    for (std::ptrdiff_t start = 0; start < n; start += kBlock) {
      const std::ptrdiff_t stop = n - start < kBlock ? n : start + kBlock;
      T block_u = 0, block_uh = 0;
      for (std::ptrdiff_t i = start; i < stop; ++i) {
        const T h = (x[i] - mean) * rstd;
        const T u = g[i] * w[i];
        sum_gh[i] += g[i] * h;
        sum_g[i] += g[i];
        block_u += u;
        block_uh += u * h;
      }
      total_u += static_cast<double>(block_u);
      total_uh += static_cast<double>(block_uh);
    }
    if (a.dx) {
      T *__restrict dx = a.dx + row * n;
      const auto mean_u = static_cast<T>(total_u / static_cast<double>(n));
      const auto mean_uh = static_cast<T>(total_uh / static_cast<double>(n));
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        dx[i] = rstd * (g[i] * w[i] - mean_u - (x[i] - mean) * rstd * mean_uh);
      }
    }
  }
  std::copy_n(dweight.totals(), n, sums_gh);
  std::copy_n(dbias.totals(), n, sums_g);
}

// Those of the sums [first, last), of 2 n values each.
template <class T>
MODTREE_ALWAYS_INLINE void layer_norm_backward_parts(const LayerNormBackward<T> &a, double *sums,
                                                     std::ptrdiff_t first, std::ptrdiff_t last) {
  const std::ptrdiff_t rows = rows_of_sum(a.rows);
  for (std::ptrdiff_t i = first; i < last; ++i) {
    double *own = sums + i * 2 * a.n;
    layer_norm_backward_rows(a, i * rows, std::min((i + 1) * rows, a.rows), own, own + a.n);
  }
}

template <class T>
void add_sums(const double *sums, std::ptrdiff_t count, std::ptrdiff_t n, T *out) {
  for (std::ptrdiff_t i = 0; i < n && out != nullptr; ++i) {
    double total = 0.0;
    for (std::ptrdiff_t j = 0; j < count; ++j) {
      total += sums[j * 2 * n + i];
    }
    out[i] = static_cast<T>(total);
  }
}

#define BACKWARD_PARAMS(T)                                                                         \
  (const LayerNormBackward<T> &a, double *sums, std::ptrdiff_t first, std::ptrdiff_t last)
MODTREE_DEFINE_KERNEL(backward_piece, BACKWARD_PARAMS, layer_norm_backward_parts,
                      (a, sums, first, last))

template <class T>
void backward_of(const LayerNormBackward<T> &a) {
  const std::ptrdiff_t rows = rows_of_sum(a.rows), count = (a.rows + rows - 1) / rows;
  Room<double> sums(count * 2 * a.n);
  parallel_for(count, 6.0 * static_cast<double>(rows) * static_cast<double>(a.n),
               [&](std::ptrdiff_t first, std::ptrdiff_t last) {
                 backward_piece(a, sums.data(), first, last);
               });
  add_sums(sums.data(), count, a.n, a.dweight);
  add_sums(sums.data() + a.n, count, a.n, a.dbias);
}

}  // namespace

#define LAYER_NORM_PARAMS(T)                                                                       \
  (const T *x, const T *weight, const T *bias, T *out, T *mean, T *rstd, std::ptrdiff_t rows,      \
   std::ptrdiff_t n, double eps)

MODTREE_DEFINE_SHARED_KERNEL(layer_norm, LAYER_NORM_PARAMS, layer_norm_rows,
                             (x, weight, bias, out, mean, rstd, rows, n, eps), parallel_for, rows,
                             3 * n + 32,
                             (x + first * n, weight, bias, out + first * n, moved(mean, first),
                              moved(rstd, first), last - first, n, eps))

void layer_norm_backward(const LayerNormBackward<float> &a) { backward_of(a); }
void layer_norm_backward(const LayerNormBackward<double> &a) { backward_of(a); }

}  // namespace modtree::kernels
