// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/along.h"

#include "kernels/index.h"
#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

struct Sixteen {
  std::uint64_t parts[2];
};

// Calls row(index, outer, other) with the offsets of the first element for every row of the last
// axis, until one returns false.
template <class Row>
MODTREE_ALWAYS_INLINE bool over_rows(const Along &a, Row row) {
  std::ptrdiff_t at[kMaxAxes] = {};
  const int last = a.ndim - 1;
  for (int i = 0; i < a.ndim; ++i) {
    if (a.shape[i] == 0) {
      return true;
    }
  }
  std::ptrdiff_t index = 0, outer = 0, other = 0;
  while (true) {
    if (!row(index, outer, other)) {
      return false;
    }
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      index += a.index_strides[axis];
      outer += a.outer_strides[axis];
      other += a.other_strides[axis];
      if (++at[axis] < a.shape[axis]) {
        break;
      }
      index -= a.shape[axis] * a.index_strides[axis];
      outer -= a.shape[axis] * a.outer_strides[axis];
      other -= a.shape[axis] * a.other_strides[axis];
      at[axis] = 0;
    }
    if (axis < 0) {
      return true;
    }
  }
}

// Calls element(place, other) for every element: where the index points, and its own place.
template <class Element>
MODTREE_ALWAYS_INLINE bool over_elements(const Along &a, Element element) {
  const int last = a.ndim - 1;
  const std::ptrdiff_t n = a.shape[last], step = a.index_strides[last];
  const std::ptrdiff_t outer_step = a.outer_strides[last], other_step = a.other_strides[last];
  return over_rows(a, [&](std::ptrdiff_t first, std::ptrdiff_t outer, std::ptrdiff_t other) {
    const std::int64_t *index = a.index + first;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      const std::int64_t picked = read_once(index + i * step);
      if (!is_inside(picked, a.axis_size)) {
        return false;
      }
      element(outer + i * outer_step + picked * a.axis_stride, other + i * other_step);
    }
    return true;
  });
}

template <class T>
bool gather_of(const Along &a, const void *x, void *out) {
  double work = 2.0;
  for (int i = 1; i < a.ndim; ++i) {
    work *= static_cast<double>(a.shape[i]);
  }
  Inside inside{true};
  parallel_for(a.shape[0], work, [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    Along part = a;
    part.shape[0] = last - first;
    part.index += first * a.index_strides[0];
    const T *from = static_cast<const T *>(x) + first * a.outer_strides[0];
    T *to = static_cast<T *>(out) + first * a.other_strides[0];
    const auto copy = [=](std::ptrdiff_t place, std::ptrdiff_t own) { to[own] = from[place]; };
    if (!over_elements(part, copy)) {
      inside = false;
    }
  });
  return inside;
}

// Calls body(part, outer, other) for parts of the work, with the offsets of their arrays, and says
// whether all returned true. Elements with different indices of another axis than the one that is
// written along have different places: parts are taken from the longest of those, so that each
// place gets its values in one order. Without such an axis there is one part.
template <class Body>
bool over_parts(const Along &a, Body body) {
  int axis = -1;
  double work = 3.0;
  for (int i = 0; i < a.ndim; ++i) {
    work *= static_cast<double>(a.shape[i]);
    if (a.outer_strides[i] != 0 && (axis < 0 || a.shape[i] > a.shape[axis])) {
      axis = i;
    }
  }
  if (axis < 0 || a.shape[axis] == 0) {
    return body(a, 0, 0);
  }
  Inside inside{true};
  parallel_for(a.shape[axis], work / static_cast<double>(a.shape[axis]),
               [&](std::ptrdiff_t first, std::ptrdiff_t last) {
                 Along part = a;
                 part.shape[axis] = last - first;
                 part.index += first * a.index_strides[axis];
                 if (!body(part, first * a.outer_strides[axis], first * a.other_strides[axis])) {
                   inside = false;
                 }
               });
  return inside;
}

template <class T>
bool assign_part(const Along &a, const T *source, T *out) {
  return over_elements(a,
                       [=](std::ptrdiff_t place, std::ptrdiff_t own) { out[place] = source[own]; });
}

template <class T>
bool assign_of(const Along &a, const void *source, void *out) {
  return over_parts(a, [=](const Along &part, std::ptrdiff_t outer, std::ptrdiff_t other) {
    return assign_part(part, static_cast<const T *>(source) + other, static_cast<T *>(out) + outer);
  });
}

template <class T>
bool scatter_part(const Along &a, ScatterMode mode, const T *source, T *out) {
  switch (mode) {
    case ScatterMode::assign:
      return assign_part(a, source, out);
    case ScatterMode::add:
      return over_elements(
          a, [=](std::ptrdiff_t place, std::ptrdiff_t own) { out[place] += source[own]; });
    case ScatterMode::multiply:
      return over_elements(
          a, [=](std::ptrdiff_t place, std::ptrdiff_t own) { out[place] *= source[own]; });
    case ScatterMode::largest:
      return over_elements(a, [=](std::ptrdiff_t place, std::ptrdiff_t own) {
        const T value = source[own];
        out[place] = value > out[place] || value != value ? value : out[place];
      });
    case ScatterMode::smallest:
      break;
  }
  return over_elements(a, [=](std::ptrdiff_t place, std::ptrdiff_t own) {
    const T value = source[own];
    out[place] = value < out[place] || value != value ? value : out[place];
  });
}

template <class T>
bool scatter_of(const Along &a, ScatterMode mode, const T *source, T *out) {
  return over_parts(a, [=](const Along &part, std::ptrdiff_t outer, std::ptrdiff_t other) {
    return scatter_part(part, mode, source + other, out + outer);
  });
}

}  // namespace

bool gather(const Along &a, std::size_t bytes, const void *x, void *out) {
  switch (bytes) {
    case 1:
      return gather_of<std::uint8_t>(a, x, out);
    case 2:
      return gather_of<std::uint16_t>(a, x, out);
    case 4:
      return gather_of<std::uint32_t>(a, x, out);
    case 8:
      return gather_of<std::uint64_t>(a, x, out);
    default:
      return gather_of<Sixteen>(a, x, out);
  }
}

bool scatter_assign(const Along &a, std::size_t bytes, const void *source, void *out) {
  switch (bytes) {
    case 1:
      return assign_of<std::uint8_t>(a, source, out);
    case 2:
      return assign_of<std::uint16_t>(a, source, out);
    case 4:
      return assign_of<std::uint32_t>(a, source, out);
    case 8:
      return assign_of<std::uint64_t>(a, source, out);
    default:
      return assign_of<Sixteen>(a, source, out);
  }
}

bool scatter(const Along &a, ScatterMode mode, const float *source, float *out) {
  return scatter_of(a, mode, source, out);
}

bool scatter(const Along &a, ScatterMode mode, const double *source, double *out) {
  return scatter_of(a, mode, source, out);
}

}  // namespace modtree::kernels
