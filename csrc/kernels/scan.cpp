// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/scan.h"

#include "kernels/dispatch.h"

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

template <bool kProduct, class T>
MODTREE_ALWAYS_INLINE void scan_axis(const Scan<T> &a) {
  const std::ptrdiff_t first = a.reverse ? (a.n - 1) * a.inner : 0;
  const std::ptrdiff_t step = a.reverse ? -a.inner : a.inner;
  if (a.inner == 1) {
    std::ptrdiff_t row = 0;
    for (; row + 8 <= a.outer; row += 8) {
      const std::ptrdiff_t at = row * a.n + first;
      scan_lanes<kProduct, 8>(a.x + at, a.out + at, a.n, step, a.n);
    }
    for (; row < a.outer; ++row) {
      const std::ptrdiff_t at = row * a.n + first;
      scan_lanes<kProduct, 1>(a.x + at, a.out + at, a.n, step, a.n);
    }
    return;
  }
  for (std::ptrdiff_t row = 0; row < a.outer; ++row) {
    const std::ptrdiff_t start = row * a.n * a.inner + first;
    std::ptrdiff_t column = 0;
    for (; column + 64 <= a.inner; column += 64) {
      scan_lanes<kProduct, 64>(a.x + start + column, a.out + start + column, a.n, step, 1);
    }
    for (; column + 8 <= a.inner; column += 8) {
      scan_lanes<kProduct, 8>(a.x + start + column, a.out + start + column, a.n, step, 1);
    }
    for (; column < a.inner; ++column) {
      scan_lanes<kProduct, 1>(a.x + start + column, a.out + start + column, a.n, step, 1);
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void scan_any(const Scan<T> &a) {
  if (a.n == 0) {
    return;
  }
  if (a.product) {
    scan_axis<true>(a);
  } else {
    scan_axis<false>(a);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void extreme_any(const RunningExtreme<T> &a) {
  if (a.n == 0) {
    return;
  }
  for (std::ptrdiff_t row = 0; row < a.outer; ++row) {
    for (std::ptrdiff_t column = 0; column < a.inner; ++column) {
      const std::ptrdiff_t start = row * a.n * a.inner + column;
      const T *x = a.x + start;
      T best = *x;
      std::int64_t index = 0;
      for (std::ptrdiff_t i = 0; i < a.n; ++i) {
        const T value = x[i * a.inner];
        const bool better = a.largest ? value >= best : value <= best;
        const bool takes = better | (value != value);
        best = takes ? value : best;
        index = takes ? i : index;
        a.out[start + i * a.inner] = best;
        a.indices[start + i * a.inner] = index;
      }
    }
  }
}

}  // namespace

MODTREE_DEFINE_STRUCT_KERNEL(scan, Scan, scan_any)
MODTREE_DEFINE_STRUCT_KERNEL(running_extreme, RunningExtreme, extreme_any)

}  // namespace modtree::kernels
