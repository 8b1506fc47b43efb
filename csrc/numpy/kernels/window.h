// SPDX-License-Identifier: BSD-3-Clause
// How windows of two axes are placed on an image: what pooling and convolution share.
#pragma once

#include <cstddef>

namespace modtree::kernels {

// One axis. Window `o` covers the positions o * stride - padding + k * dilation for k < kernel;
// those outside [0, size) are padding.
struct WindowAxis {
  std::ptrdiff_t size, kernel, stride, padding, dilation, out;
};

// How many positions the windows cover, from the first to the last.
inline std::ptrdiff_t reach(const WindowAxis &axis) {
  return (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}

// The windows `o` in [first, last) have their element `k` inside the image.
struct WindowRange {
  std::ptrdiff_t first, last;
};

inline WindowRange windows_inside(const WindowAxis &axis, std::ptrdiff_t k) {
  const std::ptrdiff_t shift =
      k * axis.dilation - axis.padding;  // position of element k in window 0
  const std::ptrdiff_t first = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
  const std::ptrdiff_t last =
      shift >= axis.size ? 0 : (axis.size - shift + axis.stride - 1) / axis.stride;
  const std::ptrdiff_t stop = last < axis.out ? last : axis.out;
  return first < stop ? WindowRange{first, stop} : WindowRange{0, 0};
}

// The first and one past the last element of window `o` that are inside the image; empty when none
// does.
inline WindowRange elements_inside(const WindowAxis &axis, std::ptrdiff_t o) {
  const std::ptrdiff_t start = o * axis.stride - axis.padding;
  const std::ptrdiff_t first = start >= 0 ? 0 : (-start + axis.dilation - 1) / axis.dilation;
  const std::ptrdiff_t last =
      start >= axis.size ? 0 : (axis.size - start + axis.dilation - 1) / axis.dilation;
  const std::ptrdiff_t stop = last < axis.kernel ? last : axis.kernel;
  return first < stop ? WindowRange{first, stop} : WindowRange{0, 0};
}

}  // namespace modtree::kernels
