// SPDX-License-Identifier: BSD-3-Clause
// Rows added where indices say: the gradient of a lookup.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/index.h"

namespace modtree::kernels {

// out[indices[i]] += g[i] for `n` rows of `width` values, into `rows` rows. Those whose index is
// `*skipped` (null: none) are left out; so are those whose index is not a row, which clears
// `*inside`.
void scatter_add_rows(const std::int64_t *indices, const float *g, float *out, std::ptrdiff_t n,
                      std::ptrdiff_t width, const std::int64_t *skipped, std::ptrdiff_t rows,
                      Inside *inside);
void scatter_add_rows(const std::int64_t *indices, const double *g, double *out, std::ptrdiff_t n,
                      std::ptrdiff_t width, const std::int64_t *skipped, std::ptrdiff_t rows,
                      Inside *inside);

}  // namespace modtree::kernels
