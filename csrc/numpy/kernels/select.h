// SPDX-License-Identifier: BSD-3-Clause
// The first elements of an order, without sorting all, along the middle axis of (outer, n, inner).
// NaN is larger than everything; of equal elements the first comes first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace modtree::kernels {

template <class T>
struct Select {
  const T *x;
  std::int64_t *indices;
  std::ptrdiff_t outer, n, inner;  // n < 2^32
  std::ptrdiff_t k;
  bool largest;
};

// indices (outer, k, inner) of the k largest or smallest, in order; k <= n.
void top_indices(const Select<float> &a);
void top_indices(const Select<double> &a);

}  // namespace modtree::kernels
