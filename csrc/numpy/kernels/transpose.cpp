// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/transpose.h"

#include <algorithm>

#include "kernels/parallel_kernel.h"
#include "kernels/transpose_tiles.h"

namespace modtree::kernels {

namespace {

// Columns of a piece, in whole lines of the cache.
constexpr std::ptrdiff_t kTile = 16;

template <class T>
MODTREE_ALWAYS_INLINE void transpose_add_columns(const T *x, const T *bias, T *out,
                                                 std::ptrdiff_t rows, std::ptrdiff_t columns,
                                                 std::ptrdiff_t first, std::ptrdiff_t last) {
  transpose_tiles<T, 16>(x + first, columns, bias, out + first * rows, rows, rows, last - first);
}

}  // namespace

#define TRANSPOSE_ADD_PARAMS(T)                                                                    \
  (const T *x, const T *bias, T *out, std::ptrdiff_t rows, std::ptrdiff_t columns)
#define TRANSPOSE_ADD_COLUMNS_PARAMS(T)                                                            \
  (const T *x, const T *bias, T *out, std::ptrdiff_t rows, std::ptrdiff_t columns,                 \
   std::ptrdiff_t first, std::ptrdiff_t last)

namespace {
MODTREE_DEFINE_KERNEL(transpose_add_piece, TRANSPOSE_ADD_COLUMNS_PARAMS, transpose_add_columns,
                      (x, bias, out, rows, columns, first, last))
}
MODTREE_DEFINE_SHARING(transpose_add, TRANSPOSE_ADD_PARAMS(float), parallel_for,
                       (columns + kTile - 1) / kTile, 3 * kTile * rows,
                       (x, bias, out, rows, columns, first *kTile, std::min(last *kTile, columns)))
MODTREE_DEFINE_SHARING(transpose_add, TRANSPOSE_ADD_PARAMS(double), parallel_for,
                       (columns + kTile - 1) / kTile, 3 * kTile * rows,
                       (x, bias, out, rows, columns, first *kTile, std::min(last *kTile, columns)))

}  // namespace modtree::kernels
