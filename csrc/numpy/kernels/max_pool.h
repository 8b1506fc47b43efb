// SPDX-License-Identifier: BSD-3-Clause
// Maxima of windows over the last two axes of `planes` contiguous images, and where they were.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/index.h"
#include "kernels/window.h"

namespace modtree::kernels {

// `indices` counts within the image of rows.size * columns.size values; a NaN is larger than
// everything, of equal values the first wins. Every window must have an element inside the image.
template <class T>
struct MaxPool {
  const T *x;
  T *out;
  std::int64_t *indices;
  std::ptrdiff_t planes;
  WindowAxis rows, columns;
};

// Adds the `from` values of each plane of g where `indices` says, into planes of `to` zeros. An
// index that is not in the plane is left out, and clears `*inside`.
template <class T>
struct MaxPoolBackward {
  const T *g;
  const std::int64_t *indices;
  T *dx;
  std::ptrdiff_t planes, from, to;
  Inside *inside;
};

void max_pool(const MaxPool<float> &a);
void max_pool(const MaxPool<double> &a);
void max_pool_backward(const MaxPoolBackward<float> &a);
void max_pool_backward(const MaxPoolBackward<double> &a);

}  // namespace modtree::kernels
