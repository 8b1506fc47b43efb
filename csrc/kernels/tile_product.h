// SPDX-License-Identifier: BSD-3-Clause
// Matrix products by tiles that stay in registers: a few rows of one matrix, read where they are,
// times a panel, a copy of a few columns of the other.
#pragma once

#include <cstddef>

#include "kernels/dispatch.h"
#include "kernels/lanes.h"

namespace modtree::kernels {

// How a tile fills the registers: kRows rows of up to kVectors vectors, whose sums take kRows *
// kVectors of them; 32 registers with AVX-512 and on other processors than x86, 16 before.
struct WideTile {
  static constexpr int kBytes = 64, kRows = 8, kVectors = 3;
};
struct MiddleTile {
  static constexpr int kBytes = 32, kRows = 4, kVectors = 3;
};
struct NarrowTile {
  static constexpr int kBytes = 16, kRows = 4, kVectors = 3;
};

// How many columns a vector and a whole panel have.
template <class T, class Tile>
constexpr std::ptrdiff_t kVectorColumns = Tile::kBytes / static_cast<std::ptrdiff_t>(sizeof(T));
template <class T, class Tile>
constexpr std::ptrdiff_t kPanelColumns = Tile::kVectors * kVectorColumns<T, Tile>;

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
};

template <class T, class Tile, int kRows, int kVectors>
MODTREE_ALWAYS_INLINE void tile_product(const TileProduct<T> &p) {
  using Vector = Lanes<T, Tile::kBytes>;
  constexpr std::ptrdiff_t kLanes = Vector::kCount;
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v].fill(T(0));
    }
  }
  const T *rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = p.a + r * p.a_stride;
  }
  const T *panel = p.panel;
  for (std::ptrdiff_t k = 0; k < p.depth; ++k, panel += kVectors * kLanes) {
    Vector columns[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      columns[v].load(panel + v * kLanes);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v].add_product(rows[r][k], columns[v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    T *out = p.out + r * p.out_stride;
    for (int v = 0; v < kVectors; ++v) {
      Vector before;
      if (p.more) {
        before.load(out + v * kLanes);
      } else {
        before.fill(p.start ? p.start[r] : T(0));
      }
      sums[r][v].add(before);
      sums[r][v].store(out + v * kLanes);
    }
  }
}

// Any number of rows, by tiles of kRows, half as many, ... one.
template <class T, class Tile, int kVectors, int kRows = Tile::kRows>
MODTREE_ALWAYS_INLINE void row_products(TileProduct<T> p, std::ptrdiff_t rows) {
  while (rows >= kRows) {
    tile_product<T, Tile, kRows, kVectors>(p);
    p.a += kRows * p.a_stride;
    p.out += kRows * p.out_stride;
    p.start = p.start ? p.start + kRows : nullptr;
    rows -= kRows;
  }
  if constexpr (kRows > 1) {
    if (rows > 0) {
      row_products<T, Tile, kVectors, kRows / 2>(p, rows);
    }
  }
}

// A panel of `vectors` vectors, from 1 to Tile::kVectors.
template <class T, class Tile, int kVectors = Tile::kVectors>
MODTREE_ALWAYS_INLINE void panel_products(const TileProduct<T> &p, std::ptrdiff_t rows,
                                          std::ptrdiff_t vectors) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) {
      return panel_products<T, Tile, kVectors - 1>(p, rows, vectors);
    }
  }
  row_products<T, Tile, kVectors>(p, rows);
}

}  // namespace modtree::kernels
