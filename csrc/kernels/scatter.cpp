// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/scatter.h"

#include "kernels/dispatch.h"

namespace modtree::kernels {
namespace {

template <class T>
MODTREE_ALWAYS_INLINE void scatter_rows(const std::int64_t *indices, const T *g, T *out,
                                        std::ptrdiff_t n, std::ptrdiff_t width,
                                        std::int64_t skipped) {
  for (std::ptrdiff_t row = 0; row < n; ++row) {
    if (indices[row] == skipped) {
      continue;
    }
    const T *__restrict from = g + row * width;
    T *__restrict to = out + indices[row] * width;
    for (std::ptrdiff_t i = 0; i < width; ++i) {
      to[i] += from[i];
    }
  }
}

}  // namespace

#define SCATTER_ADD_ROWS_PARAMS(T)                                                                 \
  (const std::int64_t *indices, const T *g, T *out, std::ptrdiff_t n, std::ptrdiff_t width,        \
   std::int64_t skipped)

MODTREE_DEFINE_KERNEL(scatter_add_rows, SCATTER_ADD_ROWS_PARAMS, scatter_rows,
                      (indices, g, out, n, width, skipped))

}  // namespace modtree::kernels
