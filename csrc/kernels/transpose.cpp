// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/transpose.h"

#include <algorithm>

#include "kernels/parallel_kernel.h"

namespace modtree::kernels {

namespace {

constexpr std::ptrdiff_t kTile = 16;

// A tile is read and written in runs of a cache line; only its copy between both is strided.
template <class T>
MODTREE_ALWAYS_INLINE void transpose_add_tiles(const T *x, const T *bias, T *out,
                                               std::ptrdiff_t rows, std::ptrdiff_t columns,
                                               std::ptrdiff_t first, std::ptrdiff_t last) {
  T tile[kTile][kTile];
  for (std::ptrdiff_t j = first; j < last; j += kTile) {
    const std::ptrdiff_t width = std::min(kTile, last - j);
    for (std::ptrdiff_t i = 0; i < rows; i += kTile) {
      const std::ptrdiff_t height = std::min(kTile, rows - i);
      if (width == kTile && height == kTile) {
        for (std::ptrdiff_t a = 0; a < kTile; ++a) {
          const T *row = x + (i + a) * columns + j;
          const T added = bias == nullptr ? T(0) : bias[i + a];
          for (std::ptrdiff_t b = 0; b < kTile; ++b) {
            tile[b][a] = row[b] + added;
          }
        }
        for (std::ptrdiff_t b = 0; b < kTile; ++b) {
          std::copy(tile[b], tile[b] + kTile, out + (j + b) * rows + i);
        }
        continue;
      }
      for (std::ptrdiff_t b = 0; b < width; ++b) {
        for (std::ptrdiff_t a = 0; a < height; ++a) {
          out[(j + b) * rows + i + a] =
              x[(i + a) * columns + j + b] + (bias == nullptr ? T(0) : bias[i + a]);
        }
      }
    }
  }
}

}  // namespace

#define TRANSPOSE_ADD_PARAMS(T)                                                                    \
  (const T *x, const T *bias, T *out, std::ptrdiff_t rows, std::ptrdiff_t columns)
#define TRANSPOSE_ADD_COLUMNS_PARAMS(T)                                                            \
  (const T *x, const T *bias, T *out, std::ptrdiff_t rows, std::ptrdiff_t columns,                 \
   std::ptrdiff_t first, std::ptrdiff_t last)

namespace {
MODTREE_DEFINE_KERNEL(transpose_add_piece, TRANSPOSE_ADD_COLUMNS_PARAMS, transpose_add_tiles,
                      (x, bias, out, rows, columns, first, last))
}
MODTREE_DEFINE_SHARING(transpose_add, TRANSPOSE_ADD_PARAMS(float), parallel_for,
                       (columns + kTile - 1) / kTile, 3 * kTile * rows,
                       (x, bias, out, rows, columns, first *kTile, std::min(last *kTile, columns)))
MODTREE_DEFINE_SHARING(transpose_add, TRANSPOSE_ADD_PARAMS(double), parallel_for,
                       (columns + kTile - 1) / kTile, 3 * kTile * rows,
                       (x, bias, out, rows, columns, first *kTile, std::min(last *kTile, columns)))

}  // namespace modtree::kernels
