// SPDX-License-Identifier: BSD-3-Clause
// Windows of images as columns of a matrix, which turns a convolution into a matrix product, and
// the sum of such columns back into images.
#pragma once

#include <cstddef>

#include "kernels/window.h"

namespace modtree::kernels {

// Images: (images, channels, rows.size, columns.size). Matrix: row r = (channel, row of the window,
// column of the window), one column for each window; the row r of image n starts at n *
// image_stride + r * row_stride. Nothing overlaps.
template <class T>
struct Columns {
  T *image, *matrix;
  std::ptrdiff_t images, channels;
  WindowAxis rows, columns;
  std::ptrdiff_t image_stride, row_stride;
};

// Fills the matrix; padding gives 0.
void im2col(const Columns<float> &a);
void im2col(const Columns<double> &a);
// Fills the images with sums over the matrix.
void col2im(const Columns<float> &a);
void col2im(const Columns<double> &a);

}  // namespace modtree::kernels
