// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/scan.h"

#include <algorithm>

#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

// kLanes scans side by side: element i of lane l is at i * step + l * apart. One scan alone would
// wait for each addition.
template <bool kProduct, int kLanes, class T>
MODTREE_ALWAYS_INLINE void scan_lanes(const T *x, T *out, std::ptrdiff_t n, std::ptrdiff_t step,
                                      std::ptrdiff_t apart) {
  double total[kLanes];
  for (double &value : total) {
    value = kProduct ? 1.0 : 0.0;
  }
  for (std::ptrdiff_t i = 0; i < n; ++i, x += step, out += step) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(x[lane * apart]);
      total[lane] = kProduct ? total[lane] * value : total[lane] + value;
      out[lane * apart] = static_cast<T>(total[lane]);
    }
  }
}

// A part of the work: so many columns of a row or, where there is one, kLanes rows.
constexpr std::ptrdiff_t kColumns = 64, kLanes = 8;

template <class T>
std::ptrdiff_t column_parts(const Scan<T> &a) {
  return (a.inner + kColumns - 1) / kColumns;
}

template <class T>
std::ptrdiff_t parts(const Scan<T> &a) {
  return a.inner == 1 ? (a.outer + kLanes - 1) / kLanes : a.outer * column_parts(a);
}

template <class T>
double part_work(const Scan<T> &a) {
  const std::ptrdiff_t lanes = a.inner == 1 ? 2 * kLanes : std::min(a.inner, kColumns);
  return static_cast<double>(lanes) * static_cast<double>(a.n);
}

template <bool kProduct, class T>
MODTREE_ALWAYS_INLINE void scan_part(const Scan<T> &a, std::ptrdiff_t part) {
  const std::ptrdiff_t first = a.reverse ? (a.n - 1) * a.inner : 0;
  const std::ptrdiff_t step = a.reverse ? -a.inner : a.inner;
  if (a.inner == 1) {
    const std::ptrdiff_t row = part * kLanes, rows = std::min(kLanes, a.outer - row);
    const std::ptrdiff_t at = row * a.n + first;
    if (rows == kLanes) {
      scan_lanes<kProduct, kLanes>(a.x + at, a.out + at, a.n, step, a.n);
      return;
    }
    for (std::ptrdiff_t i = 0; i < rows; ++i) {
      scan_lanes<kProduct, 1>(a.x + at + i * a.n, a.out + at + i * a.n, a.n, step, a.n);
    }
    return;
  }
  const std::ptrdiff_t row = part / column_parts(a);
  std::ptrdiff_t column = part % column_parts(a) * kColumns;
  const std::ptrdiff_t stop = std::min(column + kColumns, a.inner);
  const T *x = a.x + row * a.n * a.inner + first;
  T *out = a.out + row * a.n * a.inner + first;
  if (stop - column == kColumns) {
    scan_lanes<kProduct, kColumns>(x + column, out + column, a.n, step, 1);
    return;
  }
  for (; column + 8 <= stop; column += 8) {
    scan_lanes<kProduct, 8>(x + column, out + column, a.n, step, 1);
  }
  for (; column < stop; ++column) {
    scan_lanes<kProduct, 1>(x + column, out + column, a.n, step, 1);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void scan_parts_of(const Scan<T> &a, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  for (std::ptrdiff_t part = first; part < last && a.n > 0; ++part) {
    if (a.product) {
      scan_part<true>(a, part);
    } else {
      scan_part<false>(a, part);
    }
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(scan, Scan, scan_parts_of, parts(a), part_work(a))

}  // namespace modtree::kernels
