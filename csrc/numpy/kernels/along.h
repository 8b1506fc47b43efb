// SPDX-License-Identifier: BSD-3-Clause
// Elements read and written along one axis at given indices, in arrays of any strides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace modtree::kernels {

constexpr int kMaxAxes = 64;

// One index for each element of `shape`; strides count elements. `outer_strides` are those of the
// array that is indexed, with 0 for the axis.
struct Along {
  int ndim;
  std::ptrdiff_t shape[kMaxAxes];
  std::ptrdiff_t index_strides[kMaxAxes];
  std::ptrdiff_t outer_strides[kMaxAxes];
  std::ptrdiff_t other_strides[kMaxAxes];  // of the result of gather, of the source of scatter
  std::ptrdiff_t axis_stride, axis_size;
  const std::int64_t *index;
};

enum class ScatterMode { assign, add, multiply, largest, smallest };

// out[...] = x[... index ...], for elements of 1, 2, 4, 8 or 16 bytes. False, with part of the
// result written, when an index is not in [0, axis_size).
bool gather(const Along &a, std::size_t bytes, const void *x, void *out);

// out[... index ...] = source[...]; likewise.
bool scatter_assign(const Along &a, std::size_t bytes, const void *source, void *out);

// The same with the value that is there; NaN wins over extremes.
bool scatter(const Along &a, ScatterMode mode, const float *source, float *out);
bool scatter(const Along &a, ScatterMode mode, const double *source, double *out);

}  // namespace modtree::kernels
