// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/im2col.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

// The windows that have an element inside the image, for every element: found once, since it takes
// divisions.
struct Inside {
  std::vector<WindowRange> rows, columns;

  Inside(const WindowAxis &row_axis, const WindowAxis &column_axis)
      : rows(all(row_axis)),
        columns(all(column_axis)) {}

private:
  static std::vector<WindowRange> all(const WindowAxis &axis) {
    std::vector<WindowRange> ranges;
    for (std::ptrdiff_t k = 0; k < axis.kernel; ++k) {
      ranges.push_back(windows_inside(axis, k));
    }
    return ranges;
  }
};

// Calls visit(image row or null, matrix row, range) for every row of windows, in the order of the
// matrix' rows.
template <class T, class Visit>
MODTREE_ALWAYS_INLINE void for_each_row(const Columns<T> &a, const Inside &inside,
                                        std::ptrdiff_t image, std::ptrdiff_t channel, Visit visit) {
  const WindowAxis &rows = a.rows, &columns = a.columns;
  T *plane = a.image + (image * a.channels + channel) * rows.size * columns.size;
  for (std::ptrdiff_t kr = 0; kr < rows.kernel; ++kr) {
    for (std::ptrdiff_t kc = 0; kc < columns.kernel; ++kc) {
      const std::ptrdiff_t r = (channel * rows.kernel + kr) * columns.kernel + kc;
      T *matrix = a.matrix + image * a.image_stride + r * a.row_stride;
      const WindowRange range = inside.columns[static_cast<std::size_t>(kc)];
      const std::ptrdiff_t shift = kc * columns.dilation - columns.padding;
      for (std::ptrdiff_t o = 0; o < rows.out; ++o, matrix += columns.out) {
        const std::ptrdiff_t row = o * rows.stride - rows.padding + kr * rows.dilation;
        const bool any = row >= 0 && row < rows.size && range.first < range.last;
        // Points at the element that window range.first has; never before the plane.
        T *from =
            any ? plane + row * columns.size + (shift + range.first * columns.stride) : nullptr;
        visit(from, matrix, range);
      }
    }
  }
}

// The matrix' rows of one plane when a row of windows is as wide as the image: a piece of the
// plane, shifted, whose edges belong to the padding.
template <class T>
MODTREE_ALWAYS_INLINE void shifted_planes(const Columns<T> &a, const Inside &inside,
                                          std::ptrdiff_t image, std::ptrdiff_t channel) {
  const WindowAxis &rows = a.rows, &columns = a.columns;
  const std::ptrdiff_t width = columns.size;
  const T *plane = a.image + (image * a.channels + channel) * rows.size * width;
  for (std::ptrdiff_t kr = 0; kr < rows.kernel; ++kr) {
    const WindowRange high = inside.rows[static_cast<std::size_t>(kr)];
    for (std::ptrdiff_t kc = 0; kc < columns.kernel; ++kc) {
      const std::ptrdiff_t r = (channel * rows.kernel + kr) * columns.kernel + kc;
      T *__restrict to = a.matrix + image * a.image_stride + r * a.row_stride;
      const WindowRange wide = inside.columns[static_cast<std::size_t>(kc)];
      if (high.first == high.last || wide.first == wide.last) {
        std::fill(to, to + rows.out * width, T(0));
        continue;
      }
      std::fill(to, to + high.first * width, T(0));
      std::fill(to + high.last * width, to + rows.out * width, T(0));
      const std::ptrdiff_t first = high.first * width + wide.first,
                           last = (high.last - 1) * width + wide.last;
      const std::ptrdiff_t row = high.first - rows.padding + kr * rows.dilation;
      const T *__restrict from =
          plane + row * width + (kc * columns.dilation - columns.padding + wide.first);
      for (std::ptrdiff_t i = 0; i < last - first; ++i) {
        to[first + i] = from[i];
      }
      for (std::ptrdiff_t o = high.first; o < high.last && wide.first > 0; ++o) {
        for (std::ptrdiff_t i = 0; i < wide.first; ++i) {
          to[o * width + i] = 0;
        }
      }
      for (std::ptrdiff_t o = high.first; o < high.last && wide.last < width; ++o) {
        for (std::ptrdiff_t i = wide.last; i < width; ++i) {
          to[o * width + i] = 0;
        }
      }
    }
  }
}

template <class T>
double plane_work(const Columns<T> &a) {
  return static_cast<double>(a.rows.kernel * a.columns.kernel) *
         static_cast<double>(a.rows.out * a.columns.out);
}

template <class T>
MODTREE_ALWAYS_INLINE void im2col_planes(const Columns<T> &a, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  const std::ptrdiff_t width = a.columns.out, stride = a.columns.stride;
  const bool shifted = stride == 1 && a.rows.stride == 1 && width == a.columns.size;
  const Inside inside(a.rows, a.columns);
  for (std::ptrdiff_t plane = first; plane < last; ++plane) {
    const std::ptrdiff_t channel = plane / a.images, image = plane % a.images;
    if (shifted) {
      shifted_planes(a, inside, image, channel);
      continue;
    }
    for_each_row(a, inside, image, channel, [=](const T *from, T *to, WindowRange range) {
      if (!from) {
        std::fill(to, to + width, T(0));
        return;
      }
      std::fill(to, to + range.first, T(0));
      std::fill(to + range.last, to + width, T(0));
      const std::ptrdiff_t n = range.last - range.first;
      T *__restrict target = to + range.first;
      const T *__restrict source = from;
      if (stride == 1) {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          target[i] = source[i];
        }
      } else if (stride == 2) {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          target[i] = source[2 * i];
        }
      } else {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          target[i] = source[stride * i];
        }
      }
    });
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void col2im_planes(const Columns<T> &a, std::ptrdiff_t first,
                                         std::ptrdiff_t last) {
  const std::ptrdiff_t stride = a.columns.stride;
  const std::ptrdiff_t size = a.rows.size * a.columns.size;
  std::fill(a.image + first * size, a.image + last * size, T(0));
  const Inside inside(a.rows, a.columns);
  for (std::ptrdiff_t plane = first; plane < last; ++plane) {
    const std::ptrdiff_t image = plane / a.channels, channel = plane % a.channels;
    for_each_row(a, inside, image, channel, [=](T *to, const T *from, WindowRange range) {
      if (!to) {
        return;
      }
      const std::ptrdiff_t n = range.last - range.first;
      T *__restrict target = to;
      const T *__restrict source = from + range.first;
      if (stride == 1) {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          target[i] += source[i];
        }
      } else {
        for (std::ptrdiff_t i = 0; i < n; ++i) {
          target[stride * i] += source[i];
        }
      }
    });
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(im2col, Columns, im2col_planes, a.images *a.channels, plane_work(a))
MODTREE_DEFINE_PARTS_KERNEL(col2im, Columns, col2im_planes, a.images *a.channels, plane_work(a))

}  // namespace modtree::kernels
