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
  const T *grid;  // (batch, points, dims), the last size first
  T *out;         // (batch, channels, points)
  std::ptrdiff_t batch, channels, points;
  std::ptrdiff_t sizes[3];
  int dims;  // 2 or 3
  Interpolation mode;
  Outside outside;
  bool align_corners;
};

void grid_sample(const GridSample<float> &a);
void grid_sample(const GridSample<double> &a);

template <class T>
struct GridSampleBackward {
  GridSample<T> forward;  // without out
  const T *g;             // (batch, channels, points)
  T *dx;                  // like x, zeros before; or null
  T *dgrid;               // like grid, or null
};

void grid_sample_backward(const GridSampleBackward<float> &a);
void grid_sample_backward(const GridSampleBackward<double> &a);

}  // namespace modtree::kernels
