// SPDX-License-Identifier: BSD-3-Clause
// Images and volumes read at given places, between pixels by interpolation.
#pragma once

#include <cstddef>

namespace modtree::kernels {

enum class Interpolation { nearest, linear, cubic };
enum class Outside { zeros, border, reflection };

template <class T>
struct GridSample {
  const T *x;     // (batch, channels, sizes[0], ..., sizes[dims - 1])
  const T *grid;  // (batch, points, dims); of dims, the last size comes first
  T *out;         // (batch, channels, points)
  std::ptrdiff_t batch, channels, points;
  std::ptrdiff_t sizes[3];
  int dims;  // 2 or 3
  Interpolation mode;
  Outside outside;
  bool align_corners;
  // From one value of x to the next along its axes: batch, channels, sizes.
  std::ptrdiff_t x_strides[5];
  // The axes of the points, the last of which is the innermost, and from one value of grid to the
  // next along its axes: batch, points, dims.
  std::ptrdiff_t point_sizes[3];
  std::ptrdiff_t grid_strides[5];
};

// The strides of values without gaps, and all points on one axis.
template <class T>
void set_packed_strides(GridSample<T> &a) {
  std::ptrdiff_t plane = 1;
  for (int i = a.dims - 1; i >= 0; --i) {
    a.x_strides[2 + i] = plane;
    plane *= a.sizes[i];
  }
  a.x_strides[1] = plane;
  a.x_strides[0] = a.channels * plane;
  a.point_sizes[0] = a.point_sizes[1] = 1;
  a.point_sizes[2] = a.points;
  a.grid_strides[0] = a.points * a.dims;
  a.grid_strides[1] = a.grid_strides[2] = 0;
  a.grid_strides[3] = a.dims;
  a.grid_strides[4] = 1;
}

// x and grid with any strides.
void grid_sample(const GridSample<float> &a);
void grid_sample(const GridSample<double> &a);

template <class T>
struct GridSampleBackward {
  GridSample<T> forward;  // without out, and packed
  const T *g;             // (batch, channels, points)
  T *dx;                  // like x, zeros before; or null
  T *dgrid;               // like grid, or null
};

void grid_sample_backward(const GridSampleBackward<float> &a);
void grid_sample_backward(const GridSampleBackward<double> &a);

}  // namespace modtree::kernels
