// SPDX-License-Identifier: BSD-3-Clause
// The transpose of a matrix whose rows may be apart, for kernels that are built for several
// instruction sets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/lanes.h"

namespace modtree::kernels {

// As many rows as a vector has values: in each of log2(rows) rounds every row is interleaved with
// the one half of the rows further on.
template <class T, int kBytes>
MODTREE_ALWAYS_INLINE void transpose_square(const T *from, std::ptrdiff_t from_stride,
                                            const T *bias, T *to, std::ptrdiff_t to_stride) {
  using Vector = Lanes<T, kBytes>;
  constexpr int kCount = Vector::kCount;
  Vector rows[kCount];
  MODTREE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    rows[i].load(from + i * from_stride);
    if (bias != nullptr) {
      Vector added;
      added.fill(bias[i]);
      rows[i].add(added);
    }
  }
  MODTREE_UNROLL
  for (int round = 1; round < kCount; round *= 2) {
    Vector next[kCount];
    MODTREE_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      next[2 * i].interleave_low(rows[i], rows[i + kCount / 2]);
      next[2 * i + 1].interleave_high(rows[i], rows[i + kCount / 2]);
    }
    MODTREE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      rows[i] = next[i];
    }
  }
  MODTREE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    rows[i].store(to + i * to_stride);
  }
}

// to[j, i] = from[i, j] + bias[i]; `bias` may be null. Strides are from row to row; the two
// matrices do not overlap.
template <class T, int kBytes>
MODTREE_ALWAYS_INLINE void transpose_tiles(const T *from, std::ptrdiff_t from_stride, const T *bias,
                                           T *to, std::ptrdiff_t to_stride, std::ptrdiff_t rows,
                                           std::ptrdiff_t columns) {
  constexpr std::ptrdiff_t kTile = Lanes<T, kBytes>::kCount;
  for (std::ptrdiff_t j = 0; j < columns; j += kTile) {
    const std::ptrdiff_t width = std::min(kTile, columns - j);
    for (std::ptrdiff_t i = 0; i < rows; i += kTile) {
      const std::ptrdiff_t height = std::min(kTile, rows - i);
      if (width == kTile && height == kTile) {
        transpose_square<T, kBytes>(from + i * from_stride + j, from_stride, moved(bias, i),
                                    to + j * to_stride + i, to_stride);
        continue;
      }
      for (std::ptrdiff_t b = 0; b < width; ++b) {
        for (std::ptrdiff_t a = 0; a < height; ++a) {
          to[(j + b) * to_stride + i + a] =
              from[(i + a) * from_stride + j + b] + (bias == nullptr ? T(0) : bias[i + a]);
        }
      }
    }
  }
}

}  // namespace modtree::kernels
