// SPDX-License-Identifier: BSD-3-Clause
// Running sums, products and extremes along the middle axis of (outer, n, inner).
#pragma once

#include <cstddef>
#include <cstdint>

namespace modtree::kernels {

template <class T>
struct Scan {
  const T *x;
  T *out;  // not x
  std::ptrdiff_t outer, n, inner;
  bool product;
  bool reverse;  // from the last to the first
};

// Sums of floats go on in double.
void scan(const Scan<float> &a);
void scan(const Scan<double> &a);

template <class T>
struct RunningExtreme {
  const T *x;
  T *out;
  std::int64_t *indices;  // of the last that equals the extreme
  std::ptrdiff_t outer, n, inner;
  bool largest;
};

// From the first NaN on, NaN.
void running_extreme(const RunningExtreme<float> &a);
void running_extreme(const RunningExtreme<double> &a);

}  // namespace modtree::kernels
