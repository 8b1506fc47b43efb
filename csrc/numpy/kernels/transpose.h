// SPDX-License-Identifier: BSD-3-Clause
// The transpose of a contiguous (rows, columns) matrix, with one value added to each of its rows.
#pragma once

#include <cstddef>

namespace modtree::kernels {

// out[j, i] = x[i, j] + bias[i]; `bias` may be null. `out` overlaps nothing.
void transpose_add(const float *x, const float *bias, float *out, std::ptrdiff_t rows,
                   std::ptrdiff_t columns);
void transpose_add(const double *x, const double *bias, double *out, std::ptrdiff_t rows,
                   std::ptrdiff_t columns);

}  // namespace modtree::kernels
