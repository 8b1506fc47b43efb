// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/depthwise.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel_kernel.h"
#include "kernels/scratch.h"

namespace modtree::kernels {
namespace {

// So many neighbouring values at a time; scratch memory has room for so many more.
constexpr std::ptrdiff_t kLanes = 32;

std::ptrdiff_t whole_size(const WindowAxis &axis) {
  const std::ptrdiff_t padded = (axis.size + 2 * axis.padding + axis.stride - 1) / axis.stride;
  return std::max(padded, axis.out + (axis.kernel - 1) * axis.dilation / axis.stride);
}

// A padded image, taken apart by the remainders of rows and columns modulo the stride. One element
// of all windows is then a piece of memory without gaps: windows are next to each other whatever
// the stride is, and loops need not end with a row. The values of the windows are in rows of
// `width`, of which the first columns.out values count.
template <class T>
struct Scratch {
  std::ptrdiff_t height, width, total;
  Zeros<T> image, windows;
  std::vector<std::ptrdiff_t> taps;

  explicit Scratch(const Depthwise<T> &a)
      : height(whole_size(a.rows)),
        width(whole_size(a.columns)),
        // Whole lanes: what is computed beyond the last window goes into the slack.
        total((a.rows.out * width + kLanes - 1) / kLanes * kLanes),
        image(height * width * a.rows.stride * a.columns.stride + width + 2 * kLanes),
        windows(total) {
    for (std::ptrdiff_t r = 0; r < a.rows.kernel; ++r) {
      for (std::ptrdiff_t c = 0; c < a.columns.kernel; ++c) {
        taps.push_back(place(a, r * a.rows.dilation, c * a.columns.dilation));
      }
    }
  }

  // The place of the padded image's element (r, c).
  std::ptrdiff_t place(const Depthwise<T> &a, std::ptrdiff_t r, std::ptrdiff_t c) const {
    const std::ptrdiff_t part = r % a.rows.stride * a.columns.stride + c % a.columns.stride;
    return (part * height + r / a.rows.stride) * width + c / a.columns.stride;
  }

  // Calls copy(values of the plane, values of the scratch, how many, step in the plane) for all
  // pieces of the image.
  template <class Copy>
  MODTREE_ALWAYS_INLINE void for_each_piece(const Depthwise<T> &a, T *plane, Copy copy) {
    const std::ptrdiff_t step = a.columns.stride, n = a.columns.size;
    for (std::ptrdiff_t r = 0; r < a.rows.size; ++r) {
      for (std::ptrdiff_t c = 0; c < std::min(step, n); ++c) {
        T *inside = image.data() + place(a, r + a.rows.padding, c + a.columns.padding);
        copy(plane + r * n + c, inside, (n - c + step - 1) / step, step);
      }
    }
  }

  MODTREE_ALWAYS_INLINE void load_image(const Depthwise<T> &a, T *plane) {
    for_each_piece(a, plane, [](const T *from, T *to, std::ptrdiff_t n, std::ptrdiff_t step) {
      if (step == 1) {
        std::copy(from, from + n, to);
        return;
      }
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        to[i] = from[i * step];
      }
    });
  }

  MODTREE_ALWAYS_INLINE void store_image(const Depthwise<T> &a, T *plane) {
    for_each_piece(a, plane, [](T *to, const T *from, std::ptrdiff_t n, std::ptrdiff_t step) {
      for (std::ptrdiff_t i = 0; i < n; ++i) {
        to[i * step] = from[i];
      }
    });
  }

  MODTREE_ALWAYS_INLINE void load_windows(const Depthwise<T> &a, const T *plane) {
    for (std::ptrdiff_t r = 0; r < a.rows.out; ++r) {
      std::copy(plane + r * a.columns.out, plane + (r + 1) * a.columns.out,
                windows.data() + r * width);
    }
  }

  MODTREE_ALWAYS_INLINE void store_windows(const Depthwise<T> &a, T *plane) const {
    for (std::ptrdiff_t r = 0; r < a.rows.out; ++r) {
      const T *from = windows.data() + r * width;
      std::copy(from, from + a.columns.out, plane + r * a.columns.out);
    }
  }
};

// Calls visit(plane of x, weight, plane of y, is it the first of this x, is it the last of this x).
template <class T, class Visit>
MODTREE_ALWAYS_INLINE void visit_plane(const Depthwise<T> &a, std::ptrdiff_t plane, Visit visit) {
  const std::ptrdiff_t taps = a.rows.kernel * a.columns.kernel, group = plane % a.groups;
  for (std::ptrdiff_t j = 0; j < a.multiplier; ++j) {
    visit(a.x + plane * a.rows.size * a.columns.size, a.weight + (group * a.multiplier + j) * taps,
          a.y + (plane * a.multiplier + j) * a.rows.out * a.columns.out, j == 0,
          j + 1 == a.multiplier);
  }
}

// Of one plane of x.
template <class T>
double plane_work(const Depthwise<T> &a) {
  return 2.0 * static_cast<double>(a.rows.size * a.columns.size) +
         0.5 * static_cast<double>(a.multiplier * a.rows.kernel * a.columns.kernel) *
             static_cast<double>(a.rows.out * a.columns.out);
}

template <class T>
MODTREE_ALWAYS_INLINE void depthwise_all(const Depthwise<T> &a, std::ptrdiff_t first_plane,
                                         std::ptrdiff_t last_plane) {
  Scratch<T> scratch(a);
  const std::size_t taps = scratch.taps.size();
  const std::ptrdiff_t *places = scratch.taps.data();
  for (std::ptrdiff_t plane = first_plane; plane < last_plane; ++plane) {
    visit_plane(a, plane, [&](T *x, const T *weight, T *y, bool first, bool) {
      if (first) {
        scratch.load_image(a, x);
      }
      std::size_t t = 0;
      scratch.windows.clear();
      T *__restrict sums = scratch.windows.data();
      const T *from = scratch.image.data();
      // Three at a time, to read and write the sums less often.
      for (; t + 3 <= taps; t += 3) {
        const T *__restrict p = from + places[t], *__restrict q = from + places[t + 1],
                            *__restrict r = from + places[t + 2];
        const T u = weight[t], v = weight[t + 1], w = weight[t + 2];
        for (std::ptrdiff_t i = 0; i < scratch.total; ++i) {
          sums[i] += u * p[i] + v * q[i] + w * r[i];
        }
      }
      for (; t < taps; ++t) {
        const T *__restrict p = from + places[t];
        const T w = weight[t];
        for (std::ptrdiff_t i = 0; i < scratch.total; ++i) {
          sums[i] += w * p[i];
        }
      }
      scratch.store_windows(a, y);
    });
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void depthwise_transposed_all(const Depthwise<T> &a,
                                                    std::ptrdiff_t first_plane,
                                                    std::ptrdiff_t last_plane) {
  Scratch<T> scratch(a);
  const std::size_t taps = scratch.taps.size();
  for (std::ptrdiff_t plane = first_plane; plane < last_plane; ++plane) {
    visit_plane(a, plane, [&](T *x, const T *weight, const T *y, bool first, bool last) {
      if (first) {
        scratch.image.clear();
      }
      // The columns behind the last window stay 0 and add nothing to the rows they run into.
      scratch.load_windows(a, y);
      for (std::size_t t = 0; t < taps; ++t) {
        const T w = weight[t];
        T *__restrict to = scratch.image.data() + scratch.taps[t];
        const T *__restrict values = scratch.windows.data();
        for (std::ptrdiff_t i = 0; i < scratch.total; ++i) {
          to[i] += w * values[i];
        }
      }
      if (last) {
        scratch.store_image(a, x);
      }
    });
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void depthwise_weight_all(const Depthwise<T> &a, std::ptrdiff_t first_group,
                                                std::ptrdiff_t last_group) {
  Scratch<T> scratch(a);
  const std::size_t taps = scratch.taps.size();
  const std::ptrdiff_t each = a.multiplier * static_cast<std::ptrdiff_t>(taps);
  std::vector<double> totals(static_cast<std::size_t>((last_group - first_group) * each), 0.0);
  T *weights = a.weight + first_group * each;
  for (std::ptrdiff_t image = 0; image < a.images; ++image) {
    for (std::ptrdiff_t group = first_group; group < last_group; ++group) {
      visit_plane(a, image * a.groups + group,
                  [&](T *x, const T *weight, const T *y, bool first, bool) {
                    if (first) {
                      scratch.load_image(a, x);
                    }
                    scratch.load_windows(a, y);
                    double *total = totals.data() + (weight - weights);
                    for (std::size_t t = 0; t < taps; ++t) {
                      const T *__restrict values = scratch.image.data() + scratch.taps[t];
                      const T *__restrict shares = scratch.windows.data();
                      T sums[kLanes] = {};
                      for (std::ptrdiff_t start = 0; start < scratch.total; start += kLanes) {
                        for (std::ptrdiff_t i = 0; i < kLanes; ++i) {
                          sums[i] += values[start + i] * shares[start + i];
                        }
                      }
                      double sum = 0.0;
                      for (std::ptrdiff_t i = 0; i < kLanes; ++i) {
                        sum += static_cast<double>(sums[i]);
                      }
                      total[t] += sum;
                    }
                  });
    }
  }
  for (std::size_t i = 0; i < totals.size(); ++i) {
    weights[i] = static_cast<T>(totals[i]);
  }
}

}  // namespace

double depthwise_scratch(const WindowAxis &rows, const WindowAxis &columns) {
  const auto along = [](const WindowAxis &axis) {
    return static_cast<double>(whole_size(axis)) * static_cast<double>(axis.stride);
  };
  return along(rows) * along(columns);
}

MODTREE_DEFINE_PARTS_KERNEL(depthwise, Depthwise, depthwise_all, a.images *a.groups, plane_work(a))
MODTREE_DEFINE_PARTS_KERNEL(depthwise_transposed, Depthwise, depthwise_transposed_all,
                            a.images *a.groups, plane_work(a))
MODTREE_DEFINE_PARTS_KERNEL(depthwise_weight, Depthwise, depthwise_weight_all, a.groups,
                            static_cast<double>(a.images) * plane_work(a))

}  // namespace modtree::kernels
