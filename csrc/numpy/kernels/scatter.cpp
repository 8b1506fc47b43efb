// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/scatter.h"

#include <algorithm>

#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

// A part of the work.
constexpr std::ptrdiff_t kColumns = 32;

template <class T>
MODTREE_ALWAYS_INLINE void scatter_rows(const std::int64_t *indices, const T *g, T *out,
                                        std::ptrdiff_t n, std::ptrdiff_t width,
                                        const std::int64_t *skipped, std::ptrdiff_t rows,
                                        Inside *inside, std::ptrdiff_t first, std::ptrdiff_t last) {
  for (std::ptrdiff_t row = 0; row < n; ++row) {
    const std::int64_t index = read_once(indices + row);
    if (skipped != nullptr && index == *skipped) {
      continue;
    }
    if (!is_inside(index, rows)) {
      *inside = false;
      continue;
    }
    const T *__restrict from = g + row * width;
    T *__restrict to = out + index * width;
    for (std::ptrdiff_t i = first; i < last; ++i) {
      to[i] += from[i];
    }
  }
}

}  // namespace

#define SCATTER_ADD_ROWS_PARAMS(T)                                                                 \
  (const std::int64_t *indices, const T *g, T *out, std::ptrdiff_t n, std::ptrdiff_t width,        \
   const std::int64_t *skipped, std::ptrdiff_t rows, Inside *inside)
#define SCATTER_ADD_COLUMNS_PARAMS(T)                                                              \
  (const std::int64_t *indices, const T *g, T *out, std::ptrdiff_t n, std::ptrdiff_t width,        \
   const std::int64_t *skipped, std::ptrdiff_t rows, Inside *inside, std::ptrdiff_t first,         \
   std::ptrdiff_t last)
// Rows may go to one place, columns do not.
#define SCATTER_ADD_COLUMNS(T)                                                                     \
  MODTREE_DEFINE_SHARING(scatter_add_rows, SCATTER_ADD_ROWS_PARAMS(T), parallel_for,               \
                         (width + kColumns - 1) / kColumns, n * kColumns,                          \
                         (indices, g, out, n, width, skipped, rows, inside, first * kColumns,      \
                          std::min(last * kColumns, width)))

namespace {
MODTREE_DEFINE_KERNEL(scatter_add_rows_piece, SCATTER_ADD_COLUMNS_PARAMS, scatter_rows,
                      (indices, g, out, n, width, skipped, rows, inside, first, last))
}
SCATTER_ADD_COLUMNS(float)
SCATTER_ADD_COLUMNS(double)

}  // namespace modtree::kernels
