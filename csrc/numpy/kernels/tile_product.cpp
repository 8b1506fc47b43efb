// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/tile_product.h"

#include "kernels/lanes.h"
#include "kernels/transpose_tiles.h"

namespace modtree::kernels {
namespace {

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

template <class T, class Tile, int kRows, int kVectors, bool kGathered>
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
  const T *sources[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sources[v] = p.panel + (kGathered ? p.vectors[v] : v * kLanes);
  }
  for (std::ptrdiff_t k = 0; k < p.depth; ++k) {
    const std::ptrdiff_t place = kGathered ? p.places[k] : k * kVectors * kLanes;
    Vector columns[kVectors];
    MODTREE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      columns[v].load(sources[v] + place);
    }
    MODTREE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      MODTREE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v].add_product(rows[r][k], columns[v]);
      }
    }
  }
  MODTREE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    T *out = p.out + r * p.out_stride;
    MODTREE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      T *place = out + (kGathered ? p.outs[v] : v * kLanes);
      Vector before;
      if (p.more) {
        before.load(place);
      } else {
        before.fill(p.start ? p.start[r] : T(0));
      }
      sums[r][v].add(before);
      sums[r][v].store(place);
    }
  }
}

// Any number of rows, by tiles of kRows, half as many, ... one.
template <class T, class Tile, int kVectors, bool kGathered, int kRows = Tile::kRows>
MODTREE_ALWAYS_INLINE void row_products(TileProduct<T> p, std::ptrdiff_t rows) {
  while (rows >= kRows) {
    tile_product<T, Tile, kRows, kVectors, kGathered>(p);
    p.a += kRows * p.a_stride;
    p.out += kRows * p.out_stride;
    p.start = p.start ? p.start + kRows : nullptr;
    rows -= kRows;
  }
  if constexpr (kRows > 1) {
    if (rows > 0) {
      row_products<T, Tile, kVectors, kGathered, kRows / 2>(p, rows);
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
  if (p.places != nullptr) {
    row_products<T, Tile, kVectors, true>(p, rows);
  } else {
    row_products<T, Tile, kVectors, false>(p, rows);
  }
}

// Calls copy(from, to, how many) for each piece of each row.
template <class T, class Copy>
MODTREE_ALWAYS_INLINE void fill_rows(const PanelFill<T> &a, Copy copy) {
  const T *plane = a.x + a.first / a.taps * a.plane;
  std::ptrdiff_t tap = a.first % a.taps;
  T *row = a.panel;
  for (std::ptrdiff_t k = a.first; k < a.last; ++k, row += a.width) {
    const T *from = plane + a.offsets[tap];
    T *to = row;
    for (std::ptrdiff_t i = 0; i < a.count; ++i) {
      copy(from + a.pieces[i].offset, to, a.pieces[i].count);
      to += a.pieces[i].count;
    }
    if (++tap == a.taps) {
      tap = 0;
      plane += a.plane;
    }
  }
}

// Whole vectors, whatever the piece's size is: what is behind it is overwritten by what comes next.
template <class T, int kBytes, int kVectors>
MODTREE_ALWAYS_INLINE void fill_vectors(const PanelFill<T> &a) {
  using Vector = Lanes<T, kBytes>;
  fill_rows(a, [](const T *from, T *to, std::ptrdiff_t) {
    Vector values[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      values[v].load(from + v * Vector::kCount);
    }
    for (int v = 0; v < kVectors; ++v) {
      values[v].store(to + v * Vector::kCount);
    }
  });
}

template <class T, class Tile>
MODTREE_ALWAYS_INLINE void panel_fill(const PanelFill<T> &a) {
  constexpr std::ptrdiff_t kLanes = Lanes<T, Tile::kBytes>::kCount;
  static_assert(Tile::kVectors == 3, "pieces of up to so many vectors are told apart here");
  if (a.longest == 0 || a.step != 1) {
    const std::ptrdiff_t step = a.step;
    fill_rows(a, [=](const T *__restrict from, T *__restrict to, std::ptrdiff_t n) {
      if (step == 1) {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          to[i] = from[i];
        }
      } else {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          to[i] = from[step * i];
        }
      }
    });
  } else if (2 * a.longest <= kLanes) {
    fill_vectors<T, Tile::kBytes / 2, 1>(a);
  } else if (a.longest <= kLanes) {
    fill_vectors<T, Tile::kBytes, 1>(a);
  } else if (a.longest <= 2 * kLanes) {
    fill_vectors<T, Tile::kBytes, 2>(a);
  } else {
    fill_vectors<T, Tile::kBytes, 3>(a);
  }
}

template <class T, class Tile>
MODTREE_ALWAYS_INLINE void transpose_matrix(const Transposition<T> &a) {
  transpose_tiles<T, Tile::kBytes>(a.from, a.from_stride, a.bias, a.to, a.to_stride, a.rows,
                                   a.columns);
}

template <class T, class Tile>
TileKernels<T> of_tile(void (*products)(const TileProduct<T> &, std::ptrdiff_t, std::ptrdiff_t),
                       void (*fill)(const PanelFill<T> &),
                       void (*transpose)(const Transposition<T> &)) {
  constexpr std::ptrdiff_t kLanes = Lanes<T, Tile::kBytes>::kCount;
  static_assert(Tile::kRows <= kMostRows && Tile::kVectors * kLanes <= kMostColumns<T>,
                "callers have room for the largest tile");
  return {Tile::kRows, Tile::kVectors, kLanes, products, fill, transpose};
}

#ifdef MODTREE_KERNELS_X86
template <class T>
MODTREE_TARGET_AVX512 void products_avx512(const TileProduct<T> &p, std::ptrdiff_t rows,
                                           std::ptrdiff_t vectors) {
  panel_products<T, WideTile>(p, rows, vectors);
}
template <class T>
MODTREE_TARGET_AVX512 void fill_avx512(const PanelFill<T> &a) {
  panel_fill<T, WideTile>(a);
}
template <class T>
MODTREE_TARGET_AVX512 void transpose_avx512(const Transposition<T> &a) {
  transpose_matrix<T, WideTile>(a);
}
template <class T>
MODTREE_TARGET_AVX2 void products_avx2(const TileProduct<T> &p, std::ptrdiff_t rows,
                                       std::ptrdiff_t vectors) {
  panel_products<T, MiddleTile>(p, rows, vectors);
}
template <class T>
MODTREE_TARGET_AVX2 void fill_avx2(const PanelFill<T> &a) {
  panel_fill<T, MiddleTile>(a);
}
template <class T>
MODTREE_TARGET_AVX2 void transpose_avx2(const Transposition<T> &a) {
  transpose_matrix<T, MiddleTile>(a);
}
#endif
template <class T>
void products_baseline(const TileProduct<T> &p, std::ptrdiff_t rows, std::ptrdiff_t vectors) {
  panel_products<T, NarrowTile>(p, rows, vectors);
}
template <class T>
void fill_baseline(const PanelFill<T> &a) {
  panel_fill<T, NarrowTile>(a);
}
template <class T>
void transpose_baseline(const Transposition<T> &a) {
  transpose_matrix<T, NarrowTile>(a);
}

template <class T>
TileKernels<T> of_isa([[maybe_unused]] Isa isa) {
#ifdef MODTREE_KERNELS_X86
  switch (isa) {
    case Isa::avx512:
      return of_tile<T, WideTile>(products_avx512<T>, fill_avx512<T>, transpose_avx512<T>);
    case Isa::avx2:
      return of_tile<T, MiddleTile>(products_avx2<T>, fill_avx2<T>, transpose_avx2<T>);
    case Isa::baseline:
      break;
  }
#endif
  return of_tile<T, NarrowTile>(products_baseline<T>, fill_baseline<T>, transpose_baseline<T>);
}

}  // namespace

TileKernels<float> tile_kernels(Isa isa, float) { return of_isa<float>(isa); }
TileKernels<double> tile_kernels(Isa isa, double) { return of_isa<double>(isa); }

}  // namespace modtree::kernels
