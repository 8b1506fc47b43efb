// SPDX-License-Identifier: BSD-3-Clause
// Convolutions as matrix products whose second matrix, the windows as columns, is made a panel at a
// time, in the form that the products read.
#pragma once

#include <cstddef>

#include "kernels/dispatch.h"
#include "kernels/window.h"

namespace modtree::kernels {

// x: (images, groups * channels, rows.size, columns.size); weight: (groups * outputs, channels *
// rows.kernel * columns.kernel); bias: (groups * outputs), or null; y: (images, groups * outputs,
// rows.out, columns.out). A window that reaches beyond the padded image sees zeros there.
template <class T>
struct Convolution {
  const T *x, *weight, *bias;
  T *y;
  std::ptrdiff_t images, groups, channels, outputs;
  WindowAxis rows, columns;
};

// Simple operations that take as long as one multiplication of a tile.
constexpr double kMultiplyWork = 0.2;

// How many values one image takes with its padding; a floating number because sizes may be
// anything.
double convolution_scratch(std::ptrdiff_t channels, const WindowAxis &rows,
                           const WindowAxis &columns);

// y from x, weight and bias. std::bad_alloc when out of memory for padded images.
void convolution(const Convolution<float> &a);
void convolution(const Convolution<double> &a);

// The same with the given instructions, which this machine has to have.
void convolution_with(Isa isa, const Convolution<float> &a);
void convolution_with(Isa isa, const Convolution<double> &a);

}  // namespace modtree::kernels
