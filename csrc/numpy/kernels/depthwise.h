// SPDX-License-Identifier: BSD-3-Clause
// Convolutions in which each output channel sees one input channel: matrices of one row would leave
// nothing to a matrix product.
#pragma once

#include <cstddef>

#include "kernels/window.h"

namespace modtree::kernels {

// x: (images, groups, rows.size, columns.size); weight: (groups * multiplier, rows.kernel *
// columns.kernel); y: (images, groups * multiplier, rows.out, columns.out). Which of them is
// written depends on the kernel.
template <class T>
struct Depthwise {
  T *x, *weight, *y;
  std::ptrdiff_t images, groups, multiplier;
  WindowAxis rows, columns;
};

// How many values a padded image takes while it is worked on; a floating number because sizes may
// be anything.
double depthwise_scratch(const WindowAxis &rows, const WindowAxis &columns);

// y from x and weight.
void depthwise(const Depthwise<float> &a);
void depthwise(const Depthwise<double> &a);
// x, the gradient of the images, from y and weight.
void depthwise_transposed(const Depthwise<float> &a);
void depthwise_transposed(const Depthwise<double> &a);
// weight, its gradient, from x and y.
void depthwise_weight(const Depthwise<float> &a);
void depthwise_weight(const Depthwise<double> &a);

}  // namespace modtree::kernels
