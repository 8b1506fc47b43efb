// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/max_pool.h"

#include <limits>
#include <vector>

#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

// One row of windows at a time: element after element of the window is compared for all windows of
// the row, which makes the inner loop run along memory and have no branch.
template <class T, class Index>
MODTREE_ALWAYS_INLINE void max_pool_planes(const MaxPool<T> &a, std::ptrdiff_t first,
                                           std::ptrdiff_t last) {
  const WindowAxis &rows = a.rows, &columns = a.columns;
  const auto width = static_cast<std::size_t>(columns.out);
  std::vector<T> best_values(width);
  std::vector<Index> best_places(width);
  std::vector<WindowRange> ranges;
  for (std::ptrdiff_t k = 0; k < columns.kernel; ++k) {
    ranges.push_back(windows_inside(columns, k));
  }
  for (std::ptrdiff_t plane = first; plane < last; ++plane) {
    const T *x = a.x + plane * rows.size * columns.size;
    for (std::ptrdiff_t o = 0; o < rows.out; ++o) {
      T *__restrict best = best_values.data();
      Index *__restrict place = best_places.data();
      for (std::ptrdiff_t i = 0; i < columns.out; ++i) {
        best[i] = -std::numeric_limits<T>::infinity();
        place[i] = -1;
      }
      const WindowRange inside = elements_inside(rows, o);
      for (std::ptrdiff_t kr = inside.first; kr < inside.last; ++kr) {
        const std::ptrdiff_t row = o * rows.stride - rows.padding + kr * rows.dilation;
        for (std::ptrdiff_t kc = 0; kc < columns.kernel; ++kc) {
          const WindowRange range = ranges[static_cast<std::size_t>(kc)];
          const std::ptrdiff_t start = row * columns.size + kc * columns.dilation - columns.padding;
          const auto stride = columns.stride;
          for (std::ptrdiff_t i = range.first; i < range.last; ++i) {
            const std::ptrdiff_t at = start + i * stride;
            const T v = x[at];
            // The first element of a window is taken even when it is -inf; a NaN stays until
            // another one comes.
            const bool better = v > best[i] || v != v || place[i] < 0;
            best[i] = better ? v : best[i];
            place[i] = better ? static_cast<Index>(at) : place[i];
          }
        }
      }
      T *out = a.out + (plane * rows.out + o) * columns.out;
      std::int64_t *indices = a.indices + (plane * rows.out + o) * columns.out;
      for (std::ptrdiff_t i = 0; i < columns.out; ++i) {
        out[i] = best[i];
        indices[i] = place[i];
      }
    }
  }
}

// Rows of fewer windows are not worth the loops along them.
constexpr std::ptrdiff_t kNarrow = 16;

// The same, window by window.
template <class T>
MODTREE_ALWAYS_INLINE void max_pool_narrow(const MaxPool<T> &a, std::ptrdiff_t first,
                                           std::ptrdiff_t last) {
  const WindowAxis &rows = a.rows, &columns = a.columns;
  std::vector<WindowRange> ranges;
  for (std::ptrdiff_t o = 0; o < columns.out; ++o) {
    ranges.push_back(elements_inside(columns, o));
  }
  for (std::ptrdiff_t o = 0; o < rows.out; ++o) {
    const WindowRange high = elements_inside(rows, o);
    for (std::ptrdiff_t plane = first; plane < last; ++plane) {
      const T *x = a.x + plane * rows.size * columns.size;
      T *out = a.out + (plane * rows.out + o) * columns.out;
      std::int64_t *indices = a.indices + (plane * rows.out + o) * columns.out;
      for (std::ptrdiff_t i = 0; i < columns.out; ++i) {
        const WindowRange wide = ranges[static_cast<std::size_t>(i)];
        const std::ptrdiff_t corner =
            (o * rows.stride - rows.padding) * columns.size + i * columns.stride - columns.padding;
        std::ptrdiff_t place =
            corner + high.first * rows.dilation * columns.size + wide.first * columns.dilation;
        T best = x[place];
        for (std::ptrdiff_t kr = high.first; kr < high.last; ++kr) {
          for (std::ptrdiff_t kc = wide.first; kc < wide.last; ++kc) {
            const std::ptrdiff_t at =
                corner + kr * rows.dilation * columns.size + kc * columns.dilation;
            const T v = x[at];
            const bool better = v > best || v != v;
            best = better ? v : best;
            place = better ? at : place;
          }
        }
        out[i] = best;
        indices[i] = place;
      }
    }
  }
}

template <class T>
double plane_work(const MaxPool<T> &a) {
  return 2.0 * static_cast<double>(a.rows.kernel * a.columns.kernel) *
         static_cast<double>(a.rows.out * a.columns.out);
}

// Places of 32 bits where they fit: vectors of them have the width of vectors of float.
template <class T>
MODTREE_ALWAYS_INLINE void max_pool_any(const MaxPool<T> &a, std::ptrdiff_t first,
                                        std::ptrdiff_t last) {
  if (a.columns.out < kNarrow) {
    max_pool_narrow(a, first, last);
  } else if (sizeof(T) == 4 &&
             a.rows.size * a.columns.size <= std::numeric_limits<std::int32_t>::max()) {
    max_pool_planes<T, std::int32_t>(a, first, last);
  } else {
    max_pool_planes<T, std::int64_t>(a, first, last);
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void max_pool_backward_planes(const MaxPoolBackward<T> &a,
                                                    std::ptrdiff_t first, std::ptrdiff_t last) {
  for (std::ptrdiff_t plane = first; plane < last; ++plane) {
    const T *g = a.g + plane * a.from;
    const std::int64_t *indices = a.indices + plane * a.from;
    T *dx = a.dx + plane * a.to;
    for (std::ptrdiff_t i = 0; i < a.to; ++i) {
      dx[i] = 0;
    }
    for (std::ptrdiff_t i = 0; i < a.from; ++i) {
      const std::int64_t index = read_once(indices + i);
      if (is_inside(index, a.to)) {
        dx[index] += g[i];
      } else {
        *a.inside = false;
      }
    }
  }
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(max_pool, MaxPool, max_pool_any, a.planes, plane_work(a))
MODTREE_DEFINE_PARTS_KERNEL(max_pool_backward, MaxPoolBackward, max_pool_backward_planes, a.planes,
                            8 * a.from + a.to)

}  // namespace modtree::kernels
