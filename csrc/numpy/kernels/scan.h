// SPDX-License-Identifier: BSD-3-Clause
// Running sums and products along the middle axis of (outer, n, inner).
#pragma once

#include <cstddef>

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

}  // namespace modtree::kernels
