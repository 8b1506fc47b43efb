// SPDX-License-Identifier: BSD-3-Clause
// Products of a matrix and a few vectors, for processors whose vectors are wide: each value of the
// matrix is read once, where it is.
#pragma once

#include <cstddef>

#include "kernels/dispatch.h"

namespace modtree::kernels {

constexpr std::ptrdiff_t kMostVectors = 8;

// With more vectors or shorter ones, tiles (tile_product.h) are faster.
constexpr bool are_worth_dots(std::ptrdiff_t vectors, std::ptrdiff_t depth) {
  return vectors <= kMostVectors && depth >= (vectors <= kMostVectors / 2 ? 32 : 64);
}

// out[i * out_row + j * out_vector] = sum of a[i * a_stride + k] * b[j * b_stride + k] over k
// + bias[i * bias_row + j * bias_vector], for all rows i and vectors j, of which there are at most
// kMostVectors. `bias` may be null; `out` overlaps nothing.
template <class T>
struct DotProducts {
  const T *a;
  std::ptrdiff_t a_stride;
  const T *b;
  std::ptrdiff_t b_stride;
  const T *bias;
  std::ptrdiff_t bias_row, bias_vector;
  T *out;
  std::ptrdiff_t out_row, out_vector;
  std::ptrdiff_t rows, vectors, depth;
};

// With instructions that this machine has. Sums have one order for a given `depth` and `isa`.
void dot_products(Isa isa, const DotProducts<float> &a);
void dot_products(Isa isa, const DotProducts<double> &a);

}  // namespace modtree::kernels
