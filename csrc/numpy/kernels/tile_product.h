// SPDX-License-Identifier: BSD-3-Clause
// Matrix products by tiles that stay in registers: a few rows of one matrix, read where they are,
// times a panel, a few columns of the other, which are copied or gathered as they are read.
#pragma once

#include <cstddef>

#include "kernels/dispatch.h"

namespace modtree::kernels {

// out (rows, columns) = start + a (rows, depth) * panel (depth, columns). Values of a row are
// neighbours in all three.
template <class T>
struct TileProduct {
  const T *a;
  std::ptrdiff_t a_stride, depth;
  const T *panel;
  T *out;
  std::ptrdiff_t out_stride;
  // What sums begin with: `out` itself, else one value for each row, or 0 where null.
  bool more;
  const T *start;
  // Null, or the panel is not copied: vector v of its row k is at panel + places[k] + vectors[v],
  // and that of the result is at out + outs[v].
  const std::ptrdiff_t *places;
  std::ptrdiff_t vectors[3], outs[3];
};

// One piece of the source of a panel's row: `count` values at `offset`.
struct Piece {
  std::ptrdiff_t offset, count;
};

// A panel whose rows are gathered: row k has the pieces at x + k / taps * plane + offsets[k %
// taps], one after the other. The values between the last piece and `width` are undefined.
template <class T>
struct PanelFill {
  const T *x;
  std::ptrdiff_t plane, taps;
  const std::ptrdiff_t *offsets;
  std::ptrdiff_t first, last;  // rows
  const Piece *pieces;
  std::ptrdiff_t count;
  // From one value of a piece to the next.
  std::ptrdiff_t step;
  // No piece has more values; 0 where no value behind a piece may be read. Otherwise a whole panel
  // may be read behind the beginning of each, and written behind the panel.
  std::ptrdiff_t longest;
  T *panel;
  std::ptrdiff_t width;
};

// to[j, i] = from[i, j] + bias[i] for a matrix of (rows, columns); `bias` may be null.
template <class T>
struct Transposition {
  const T *from;
  std::ptrdiff_t from_stride;
  const T *bias;
  T *to;
  std::ptrdiff_t to_stride, rows, columns;
};

// What one set of instructions works with.
template <class T>
struct TileKernels {
  // Rows of a tile, vectors of a panel, values of a vector.
  std::ptrdiff_t rows, vectors, lanes;
  // So many rows, at most those of a tile, and so many vectors.
  void (*products)(const TileProduct<T> &, std::ptrdiff_t rows, std::ptrdiff_t vectors);
  void (*fill)(const PanelFill<T> &);
  void (*transpose)(const Transposition<T> &);

  std::ptrdiff_t columns() const { return vectors * lanes; }
};

// No set of instructions has larger tiles.
constexpr std::ptrdiff_t kMostRows = 8;
template <class T>
constexpr std::ptrdiff_t kMostColumns = 3 * 64 / static_cast<std::ptrdiff_t>(sizeof(T));

// For instructions that this machine has.
TileKernels<float> tile_kernels(Isa isa, float);
TileKernels<double> tile_kernels(Isa isa, double);

}  // namespace modtree::kernels
