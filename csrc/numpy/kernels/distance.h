// SPDX-License-Identifier: BSD-3-Clause
// Distances of every row of one matrix to every row of another, from the differences themselves:
// exact for points that are close together.
#pragma once

#include <cstddef>

namespace modtree::kernels {

enum class Norm { zero, one, two, infinity, other };

template <class T>
struct Distance {
  const T *x;   // (rows, width)
  const T *yt;  // (width, columns): the other points are the columns
  T *out;       // (rows, columns)
  std::ptrdiff_t rows, columns, width;
  Norm norm;
  double p;
};

void distance(const Distance<float> &a);
void distance(const Distance<double> &a);

template <class T>
struct DistanceBackward {
  const T *g, *distances;  // (rows, columns)
  const T *x, *yt;
  T *dx;   // (rows, width)
  T *dyt;  // (width, columns), zeros before
  std::ptrdiff_t rows, columns, width;
  Norm norm;
  double p;
};

void distance_backward(const DistanceBackward<float> &a);
void distance_backward(const DistanceBackward<double> &a);

}  // namespace modtree::kernels
