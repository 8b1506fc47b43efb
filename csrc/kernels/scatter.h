// SPDX-License-Identifier: BSD-3-Clause
// Rows added where indices say: the gradient of a lookup.
#pragma once

#include <cstddef>
#include <cstdint>

namespace modtree::kernels {

// out[indices[i]] += g[i] for `n` rows of `width` values; rows whose index is `skipped` are left
// out. The caller has checked the indices.
void scatter_add_rows(const std::int64_t *indices, const float *g, float *out, std::ptrdiff_t n,
                      std::ptrdiff_t width, std::int64_t skipped);
void scatter_add_rows(const std::int64_t *indices, const double *g, double *out, std::ptrdiff_t n,
                      std::ptrdiff_t width, std::int64_t skipped);

}  // namespace modtree::kernels
