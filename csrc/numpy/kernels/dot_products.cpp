// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/dot_products.h"

#include <algorithm>

#include "kernels/lanes.h"
#include "kernels/parallel.h"

namespace modtree::kernels {
namespace {

// Rows of a piece of work, and simple operations that take as long as reading one value of the
// matrix or multiplying it with one more vector.
constexpr std::ptrdiff_t kPieceRows = 16;
constexpr double kReadWork = 0.3, kMultiplyWork = 0.1;

// kRows rows times kVectors vectors. Their sums stay in registers, of which AVX2 has half as many.
template <class T, int kBytes, int kRows, int kVectors>
MODTREE_ALWAYS_INLINE void dot_tile(const DotProducts<T> &p, std::ptrdiff_t row) {
  using Vector = Lanes<T, kBytes>;
  constexpr std::ptrdiff_t kLanes = Vector::kCount;
  Vector sums[kRows][kVectors];
  const T *rows[kRows];
  MODTREE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    rows[i] = p.a + (row + i) * p.a_stride;
    MODTREE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j].fill(T(0));
    }
  }
  const T *vectors[kVectors];
  MODTREE_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    vectors[j] = p.b + j * p.b_stride;
  }
  std::ptrdiff_t k = 0;
  for (; k + kLanes <= p.depth; k += kLanes) {
    Vector right[kVectors];
    MODTREE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      right[j].load(vectors[j] + k);
    }
    MODTREE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      Vector left;
      left.load(rows[i] + k);
      MODTREE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        sums[i][j].add_product(left, right[j]);
      }
    }
  }
  MODTREE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    MODTREE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      T sum = sums[i][j].sum();
      for (std::ptrdiff_t rest = k; rest < p.depth; ++rest) {
        sum += rows[i][rest] * vectors[j][rest];
      }
      if (p.bias != nullptr) {
        sum += p.bias[(row + i) * p.bias_row + j * p.bias_vector];
      }
      p.out[(row + i) * p.out_row + j * p.out_vector] = sum;
    }
  }
}

template <class T, int kBytes, int kRows, int kVectors>
MODTREE_ALWAYS_INLINE void dot_rows(const DotProducts<T> &p, std::ptrdiff_t first,
                                    std::ptrdiff_t last) {
  for (; first + kRows <= last; first += kRows) {
    dot_tile<T, kBytes, kRows, kVectors>(p, first);
  }
  for (; first < last; ++first) {
    dot_tile<T, kBytes, 1, kVectors>(p, first);
  }
}

// The rows [first, last), which stay in the cache, times up to four vectors at a time: kRows rows
// of one or two, half as many of more.
template <class T, int kBytes, int kRows>
MODTREE_ALWAYS_INLINE void some_dots(const DotProducts<T> &all, std::ptrdiff_t first,
                                     std::ptrdiff_t last) {
  for (std::ptrdiff_t j = 0; j < all.vectors; j += 4) {
    DotProducts<T> p = all;
    p.vectors = std::min<std::ptrdiff_t>(all.vectors - j, 4);
    p.b = all.b + j * all.b_stride;
    p.out = all.out + j * all.out_vector;
    p.bias = moved(all.bias, j * all.bias_vector);
    if (p.vectors == 1) {
      dot_rows<T, kBytes, kRows, 1>(p, first, last);
    } else if (p.vectors == 2) {
      dot_rows<T, kBytes, kRows, 2>(p, first, last);
    } else if (p.vectors == 3) {
      dot_rows<T, kBytes, kRows / 2, 3>(p, first, last);
    } else {
      dot_rows<T, kBytes, kRows / 2, 4>(p, first, last);
    }
  }
}

template <class T>
using SomeDots = void (*)(const DotProducts<T> &, std::ptrdiff_t first, std::ptrdiff_t last);

#ifdef MODTREE_KERNELS_X86
template <class T>
MODTREE_TARGET_AVX512 void dots_avx512(const DotProducts<T> &p, std::ptrdiff_t first,
                                       std::ptrdiff_t last) {
  some_dots<T, 64, 8>(p, first, last);
}
template <class T>
MODTREE_TARGET_AVX2 void dots_avx2(const DotProducts<T> &p, std::ptrdiff_t first,
                                   std::ptrdiff_t last) {
  some_dots<T, 32, 4>(p, first, last);
}
#endif
template <class T>
void dots_baseline(const DotProducts<T> &p, std::ptrdiff_t first, std::ptrdiff_t last) {
  some_dots<T, 16, 4>(p, first, last);
}

template <class T>
SomeDots<T> dots_of([[maybe_unused]] Isa isa) {
#ifdef MODTREE_KERNELS_X86
  switch (isa) {
    case Isa::avx512:
      return dots_avx512<T>;
    case Isa::avx2:
      return dots_avx2<T>;
    case Isa::baseline:
      break;
  }
#endif
  return dots_baseline<T>;
}

template <class T>
void dot_all(Isa isa, const DotProducts<T> &p) {
  const SomeDots<T> some = dots_of<T>(isa);
  const std::ptrdiff_t pieces = (p.rows + kPieceRows - 1) / kPieceRows;
  const double work = static_cast<double>(kPieceRows) * static_cast<double>(p.depth) *
                      (kReadWork + kMultiplyWork * static_cast<double>(p.vectors));
  parallel_for(pieces, work, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    for (; first < last; ++first) {
      some(p, first * kPieceRows, std::min((first + 1) * kPieceRows, p.rows));
    }
  });
}

}  // namespace

void dot_products(Isa isa, const DotProducts<float> &p) { dot_all(isa, p); }
void dot_products(Isa isa, const DotProducts<double> &p) { dot_all(isa, p); }

}  // namespace modtree::kernels
