// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/distance.h"

#include <cmath>

#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

// So many rows and columns are computed together: their sums stay in registers. With 16 columns GCC
// takes no vectors for doubles.
constexpr int kRows = 4, kColumns = 32;

struct One {
  template <class T>
  static MODTREE_ALWAYS_INLINE T add(T sum, T d, T) {
    return sum + std::fabs(d);
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T finish(T sum, T) {
    return sum;
  }
  // The derivative by d of the distance, of which the factor below is a part.
  template <class T>
  static MODTREE_ALWAYS_INLINE T slope(T d, T, T) {
    return static_cast<T>(d > 0) - static_cast<T>(d < 0);
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T factor(T g, T, T) {
    return g;
  }
};

struct Two {
  template <class T>
  static MODTREE_ALWAYS_INLINE T add(T sum, T d, T) {
    return sum + d * d;
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T finish(T sum, T) {
    return std::sqrt(sum);
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T slope(T d, T, T) {
    return d;
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T factor(T g, T distance, T) {
    return distance == 0 ? T(0) : g / distance;
  }
};

struct Infinity {
  template <class T>
  static MODTREE_ALWAYS_INLINE T add(T sum, T d, T) {
    const T size = std::fabs(d);
    return size > sum || size != size ? size : sum;
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T finish(T sum, T) {
    return sum;
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T slope(T d, T distance, T) {
    return std::fabs(d) == distance ? static_cast<T>(d > 0) - static_cast<T>(d < 0) : T(0);
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T factor(T g, T, T) {
    return g;
  }
};

struct Zero {
  template <class T>
  static MODTREE_ALWAYS_INLINE T add(T sum, T d, T) {
    return sum + (d == 0 ? T(0) : d == d ? T(1) : d);
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T finish(T sum, T) {
    return sum;
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T slope(T, T, T) {
    return 0;
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T factor(T, T, T) {
    return 0;
  }
};

struct Other {
  template <class T>
  static MODTREE_ALWAYS_INLINE T add(T sum, T d, T p) {
    return sum + std::pow(std::fabs(d), p);
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T finish(T sum, T p) {
    return std::pow(sum, 1 / p);
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T slope(T d, T, T p) {
    const T size = std::pow(std::fabs(d), p - 1);
    return d == 0 ? T(0) : d > 0 ? size : d < 0 ? -size : d;
  }
  template <class T>
  static MODTREE_ALWAYS_INLINE T factor(T g, T distance, T p) {
    return distance == 0 ? T(0) : g / std::pow(distance, p - 1);
  }
};

// kHeight rows from `row` by kWidth columns from `column`.
template <class N, int kHeight, int kWidth, class T>
MODTREE_ALWAYS_INLINE void tile(const Distance<T> &a, std::ptrdiff_t row, std::ptrdiff_t column) {
  T sums[kHeight][kWidth] = {};
  const auto p = static_cast<T>(a.p);
  const T *x = a.x + row * a.width;
  for (std::ptrdiff_t m = 0; m < a.width; ++m) {
    const T *y = a.yt + m * a.columns + column;
    for (int i = 0; i < kHeight; ++i) {
      const T value = x[i * a.width + m];
      for (int j = 0; j < kWidth; ++j) {
        sums[i][j] = N::add(sums[i][j], value - y[j], p);
      }
    }
  }
  for (int i = 0; i < kHeight; ++i) {
    T *to = a.out + (row + i) * a.columns + column;
    for (int j = 0; j < kWidth; ++j) {
      to[j] = N::finish(sums[i][j], p);
    }
  }
}

template <class N, int kWidth, class T>
MODTREE_ALWAYS_INLINE void strip(const Distance<T> &a, std::ptrdiff_t column, std::ptrdiff_t row,
                                 std::ptrdiff_t rows) {
  if constexpr (kWidth > 4) {  // the others are left over: not worth the time to compile them
    for (; row + kRows <= rows; row += kRows) {
      tile<N, kRows, kWidth>(a, row, column);
    }
  }
  for (; row < rows; ++row) {
    tile<N, 1, kWidth>(a, row, column);
  }
}

template <class N, class T>
MODTREE_ALWAYS_INLINE void all_distances(const Distance<T> &a, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  const std::ptrdiff_t row = first * kRows, rows = last * kRows < a.rows ? last * kRows : a.rows;
  std::ptrdiff_t column = 0;
  for (; column + kColumns <= a.columns; column += kColumns) {
    strip<N, kColumns>(a, column, row, rows);
  }
  for (; column + 4 <= a.columns; column += 4) {
    strip<N, 4>(a, column, row, rows);
  }
  for (; column < a.columns; ++column) {
    strip<N, 1>(a, column, row, rows);
  }
}

// Of kRows rows.
template <class T>
double block_work(const Distance<T> &a) {
  return (a.norm == Norm::other ? 40.0 : 0.5) * kRows * static_cast<double>(a.columns) *
         static_cast<double>(a.width);
}

template <class T>
MODTREE_ALWAYS_INLINE void distance_of(const Distance<T> &a, std::ptrdiff_t first,
                                       std::ptrdiff_t last) {
  switch (a.norm) {
    case Norm::zero:
      return all_distances<Zero>(a, first, last);
    case Norm::one:
      return all_distances<One>(a, first, last);
    case Norm::two:
      return all_distances<Two>(a, first, last);
    case Norm::infinity:
      return all_distances<Infinity>(a, first, last);
    case Norm::other:
      break;
  }
  all_distances<Other>(a, first, last);
}

// Coordinates whose gradients are a part of the work: each part goes over all distances.
constexpr std::ptrdiff_t kCoordinates = 16;

// One row, kWidth columns: what they add to the row's gradient, and what the row adds to theirs,
// for the coordinates [first, last).
template <class N, int kWidth, class T>
MODTREE_ALWAYS_INLINE void backward_tile(const DistanceBackward<T> &a, std::ptrdiff_t row,
                                         std::ptrdiff_t column, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  constexpr int kLanes = kWidth < 16 ? kWidth : 16;
  const auto p = static_cast<T>(a.p);
  T factors[kWidth], distances[kWidth];
  for (int j = 0; j < kWidth; ++j) {
    const std::ptrdiff_t at = row * a.columns + column + j;
    distances[j] = a.distances[at];
    factors[j] = N::factor(a.g[at], distances[j], p);
  }
  for (std::ptrdiff_t m = first; m < last; ++m) {
    const T value = a.x[row * a.width + m];
    const T *y = a.yt + m * a.columns + column;
    T *dy = a.dyt + m * a.columns + column;
    T lanes[kLanes] = {};
    for (int j = 0; j < kWidth; j += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const T part = factors[j + lane] * N::slope(value - y[j + lane], distances[j + lane], p);
        lanes[lane] += part;
        dy[j + lane] -= part;
      }
    }
    T sum = 0;
    for (const T lane : lanes) {
      sum += lane;
    }
    a.dx[row * a.width + m] += sum;
  }
}

template <class N, class T>
MODTREE_ALWAYS_INLINE void all_gradients(const DistanceBackward<T> &a, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  for (std::ptrdiff_t row = 0; row < a.rows; ++row) {
    for (std::ptrdiff_t m = first; m < last; ++m) {
      a.dx[row * a.width + m] = 0;
    }
  }
  // Columns outside, so that their gradients stay in the cache.
  std::ptrdiff_t column = 0;
  for (; column + 64 <= a.columns; column += 64) {
    for (std::ptrdiff_t row = 0; row < a.rows; ++row) {
      backward_tile<N, 64>(a, row, column, first, last);
    }
  }
  for (; column < a.columns; ++column) {
    for (std::ptrdiff_t row = 0; row < a.rows; ++row) {
      backward_tile<N, 1>(a, row, column, first, last);
    }
  }
}

// Of kCoordinates coordinates.
template <class T>
double coordinates_work(const DistanceBackward<T> &a) {
  return (a.norm == Norm::other ? 60.0 : 1.5) * static_cast<double>(kCoordinates) *
         static_cast<double>(a.rows) * static_cast<double>(a.columns);
}

template <class T>
MODTREE_ALWAYS_INLINE void distance_backward_of(const DistanceBackward<T> &a, std::ptrdiff_t first,
                                                std::ptrdiff_t last) {
  first *= kCoordinates;
  last = last * kCoordinates < a.width ? last * kCoordinates : a.width;
  switch (a.norm) {
    case Norm::zero:
      return all_gradients<Zero>(a, first, last);
    case Norm::one:
      return all_gradients<One>(a, first, last);
    case Norm::two:
      return all_gradients<Two>(a, first, last);
    case Norm::infinity:
      return all_gradients<Infinity>(a, first, last);
    case Norm::other:
      break;
  }
  all_gradients<Other>(a, first, last);
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(distance, Distance, distance_of, (a.rows + kRows - 1) / kRows,
                            block_work(a))
MODTREE_DEFINE_PARTS_KERNEL(distance_backward, DistanceBackward, distance_backward_of,
                            (a.width + kCoordinates - 1) / kCoordinates, coordinates_work(a))

}  // namespace modtree::kernels
