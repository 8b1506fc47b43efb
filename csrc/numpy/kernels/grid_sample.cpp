// SPDX-License-Identifier: BSD-3-Clause
// A point reads up to four pixels ("taps") along each axis, each with a weight; what it gets is the
// sum over all combinations. Weights and pixel numbers are found once for all channels.
#include "kernels/grid_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/index.h"
#include "kernels/parallel_kernel.h"

namespace modtree::kernels {
namespace {

// What a point reads along one axis.
template <class T, int kTaps>
struct AxisTaps {
  std::ptrdiff_t pixel[kTaps];  // -1 where there is none
  T weight[kTaps];
  T slope[kTaps];  // of the weight by the place in the grid
};

// A place, and its derivative by the place it comes from.
template <class T>
struct Place {
  T at, slope;
};

template <class T>
MODTREE_ALWAYS_INLINE Place<T> in_pixels(T place, std::ptrdiff_t size, bool align) {
  const auto n = static_cast<T>(size);
  return align ? Place<T>{(place + 1) / 2 * (n - 1), (n - 1) / 2}
               : Place<T>{((place + 1) * n - 1) / 2, n / 2};
}

template <class T>
MODTREE_ALWAYS_INLINE Place<T> limited(Place<T> p, std::ptrdiff_t size) {
  const auto most = static_cast<T>(size - 1);
  if (p.at <= 0) {
    return {0, 0};
  }
  return p.at >= most ? Place<T>{most, 0} : p;
}

// Folded back into the image, whose edges are the centres of its outer pixels or half a pixel
// outside.
template <class T>
MODTREE_ALWAYS_INLINE Place<T> reflected(Place<T> p, std::ptrdiff_t size, bool align) {
  const T low = align ? T(0) : T(-0.5);
  const T span = align ? static_cast<T>(size - 1) : static_cast<T>(size);
  if (!(span > 0)) {
    return {0, 0};
  }
  const T from = p.at - low;
  const T distance = std::fabs(from);
  const T turns = std::floor(distance / span);
  const T rest = distance - turns * span;
  const bool even = turns - 2 * std::floor(turns / 2) == 0;
  const T sign = (from < 0) == even ? T(-1) : T(1);
  return {(even ? rest : span - rest) + low, p.slope * sign};
}

template <class T>
MODTREE_ALWAYS_INLINE Place<T> moved_inside(Place<T> p, std::ptrdiff_t size, Outside outside,
                                            bool align) {
  switch (outside) {
    case Outside::zeros:
      return p;
    case Outside::border:
      return limited(p, size);
    case Outside::reflection:
      break;
  }
  return limited(reflected(p, size, align), size);
}

template <class T>
MODTREE_ALWAYS_INLINE std::ptrdiff_t pixel_at(T whole, std::ptrdiff_t size) {
  return whole >= 0 && whole < static_cast<T>(size) ? static_cast<std::ptrdiff_t>(whole) : -1;
}

template <class T>
MODTREE_ALWAYS_INLINE void taps_of(AxisTaps<T, 1> &taps, T place, std::ptrdiff_t size,
                                   Outside outside, bool align) {
  const Place<T> p = moved_inside(in_pixels(place, size, align), size, outside, align);
  taps.pixel[0] = pixel_at(std::nearbyint(p.at), size);
  taps.weight[0] = 1;
  taps.slope[0] = 0;
}

template <class T>
MODTREE_ALWAYS_INLINE void taps_of(AxisTaps<T, 2> &taps, T place, std::ptrdiff_t size,
                                   Outside outside, bool align) {
  const Place<T> p = moved_inside(in_pixels(place, size, align), size, outside, align);
  const T low = std::floor(p.at);
  const T share = p.at - low;
  taps.pixel[0] = pixel_at(low, size);
  taps.pixel[1] = pixel_at(low + 1, size);
  taps.weight[0] = 1 - share;
  taps.weight[1] = share;
  taps.slope[0] = -p.slope;
  taps.slope[1] = p.slope;
}

// The cubic convolution of Keys with -0.75: near for distances up to 1, far for those up to 2.
constexpr double kCubic = -0.75;

template <class T>
MODTREE_ALWAYS_INLINE void taps_of(AxisTaps<T, 4> &taps, T place, std::ptrdiff_t size,
                                   Outside outside, bool align) {
  const Place<T> p = in_pixels(place, size, align);
  const T low = std::floor(p.at);
  const T share = p.at - low;
  const T k = static_cast<T>(kCubic);
  for (int i = 0; i < 4; ++i) {
    const T side = i < 2 ? T(1) : T(-1);  // how the distance grows with the share
    const T d = i < 2 ? share + static_cast<T>(1 - i) : static_cast<T>(i - 1) - share;
    const bool near = i == 1 || i == 2;
    taps.weight[i] =
        near ? ((k + 2) * d - (k + 3)) * d * d + 1 : ((k * d - 5 * k) * d + 8 * k) * d - 4 * k;
    const T slope = near ? (3 * (k + 2) * d - 2 * (k + 3)) * d : (3 * k * d - 10 * k) * d + 8 * k;
    taps.slope[i] = side * slope * p.slope;
    const Place<T> at =
        moved_inside(Place<T>{low + static_cast<T>(i - 1), 0}, size, outside, align);
    taps.pixel[i] = pixel_at(at.at, size);
  }
}

constexpr int power(int base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

// Offsets may be negative, and no image is so large.
constexpr std::ptrdiff_t kNone = std::numeric_limits<std::ptrdiff_t>::min();

// What a point reads of a plane.
template <class T, int kTaps, int kDims>
struct PointTaps {
  static constexpr int kCount = power(kTaps, kDims);
  std::ptrdiff_t offset[kCount];  // kNone outside of the image
  T weight[kCount];
  T slope[kDims][kCount];
};

template <class T, int kTaps, int kDims>
MODTREE_ALWAYS_INLINE void find_taps(PointTaps<T, kTaps, kDims> &taps, const T *place,
                                     const GridSample<T> &a) {
  AxisTaps<T, kTaps> axes[kDims];
  for (int i = 0; i < kDims; ++i) {
    taps_of(axes[i], place[kDims - 1 - i], a.sizes[i], a.outside, a.align_corners);
  }
  for (int tap = 0; tap < taps.kCount; ++tap) {
    std::ptrdiff_t offset = 0;
    bool inside = true;
    T weight = 1;
    int number[kDims];
    for (int i = 0, left = tap; i < kDims; ++i) {
      const int part = power(kTaps, kDims - 1 - i);
      number[i] = left / part;
      left %= part;
      const std::ptrdiff_t pixel = axes[i].pixel[number[i]];
      inside &= pixel >= 0;
      offset += pixel * a.x_strides[2 + i];
      weight *= axes[i].weight[number[i]];
    }
    taps.offset[tap] = inside ? offset : kNone;
    taps.weight[tap] = weight;
    for (int i = 0; i < kDims; ++i) {
      T slope = axes[i].slope[number[i]];
      for (int j = 0; j < kDims; ++j) {
        slope *= j == i ? T(1) : axes[j].weight[number[j]];
      }
      taps.slope[i][tap] = slope;
    }
  }
}

constexpr std::ptrdiff_t kPoints = 32;

template <class T>
std::ptrdiff_t plane_size(const GridSample<T> &a) {
  std::ptrdiff_t size = 1;
  for (int i = 0; i < a.dims; ++i) {
    size *= a.sizes[i];
  }
  return size;
}

// Goes over the places of one image in order.
template <class T, int kDims>
class Places {
public:
  Places(const GridSample<T> &a, std::ptrdiff_t image, std::ptrdiff_t first)
      : a_(a),
        at_(a.grid + image * a.grid_strides[0]) {
    for (int axis = 2; axis >= 0 && first > 0; --axis) {
      done_[axis] = first % a.point_sizes[axis];
      first /= a.point_sizes[axis];
      at_ += done_[axis] * a.grid_strides[1 + axis];
    }
  }

  MODTREE_ALWAYS_INLINE void next(T *place) {
    for (int i = 0; i < kDims; ++i) {
      place[i] = read_once(at_ + i * a_.grid_strides[4]);
    }
    at_ += a_.grid_strides[3];
    if (++done_[2] == a_.point_sizes[2]) {
      next_row();
    }
  }

private:
  void next_row() {
    for (int axis = 2; axis >= 0 && done_[axis] == a_.point_sizes[axis]; --axis) {
      at_ -= done_[axis] * a_.grid_strides[1 + axis];
      done_[axis] = 0;
      if (axis > 0) {
        ++done_[axis - 1];
        at_ += a_.grid_strides[axis];
      }
    }
  }

  const GridSample<T> &a_;
  const T *at_;
  std::ptrdiff_t done_[3] = {0, 0, 0};
};

// What some points read of a plane, point by point next to each other: loops over them have no
// branches.
template <class T, int kTaps, int kDims>
struct ManyTaps {
  static constexpr int kCount = power(kTaps, kDims);
  std::ptrdiff_t offset[kCount][kPoints];  // kNone outside of the image
  T weight[kCount][kPoints];
};

template <class T, int kTaps, int kDims>
MODTREE_ALWAYS_INLINE void find_many_taps(ManyTaps<T, kTaps, kDims> &taps, Places<T, kDims> &places,
                                          std::ptrdiff_t count, const GridSample<T> &a,
                                          Outside outside) {
  T place[kDims][kPoints];
  for (std::ptrdiff_t p = 0; p < count; ++p) {
    T point[kDims];
    places.next(point);
    for (int i = 0; i < kDims; ++i) {
      place[i][p] = point[kDims - 1 - i];
    }
  }
  std::ptrdiff_t offset[kDims][kTaps][kPoints];
  T weight[kDims][kTaps][kPoints];
  for (int i = 0; i < kDims; ++i) {
    const std::ptrdiff_t size = a.sizes[i], stride = a.x_strides[2 + i];
    const bool align = a.align_corners;
    for (std::ptrdiff_t p = 0; p < count; ++p) {
      AxisTaps<T, kTaps> axis;
      taps_of(axis, place[i][p], size, outside, align);
      for (int k = 0; k < kTaps; ++k) {
        offset[i][k][p] = axis.pixel[k] >= 0 ? axis.pixel[k] * stride : kNone;
        weight[i][k][p] = axis.weight[k];
      }
    }
  }
  for (int tap = 0; tap < taps.kCount; ++tap) {
    for (int i = 0, left = tap; i < kDims; ++i) {
      const int part = power(kTaps, kDims - 1 - i), number = left / part;
      left %= part;
      for (std::ptrdiff_t p = 0; p < count; ++p) {
        const std::ptrdiff_t before = i == 0 ? 0 : taps.offset[tap][p], more = offset[i][number][p];
        taps.offset[tap][p] = before == kNone || more == kNone ? kNone : before + more;
        taps.weight[tap][p] = (i == 0 ? T(1) : taps.weight[tap][p]) * weight[i][number][p];
      }
    }
  }
}

// A part of the work: kPoints points of one image, or fewer at its end.
template <class T>
std::ptrdiff_t point_parts(const GridSample<T> &a) {
  return (a.points + kPoints - 1) / kPoints;
}

template <class T>
double part_work(const GridSample<T> &a) {
  const int taps = a.mode == Interpolation::nearest ? 1 : a.mode == Interpolation::linear ? 2 : 4;
  return kPoints * (20.0 + 2.0 * power(taps, a.dims) * static_cast<double>(a.channels));
}

template <int kTaps, int kDims, class T>
MODTREE_ALWAYS_INLINE void sample(const GridSample<T> &a, Outside outside, std::ptrdiff_t first,
                                  std::ptrdiff_t last) {
  static constexpr T kZero = 0;
  const bool empty = plane_size(a) == 0;
  ManyTaps<T, kTaps, kDims> taps;
  for (std::ptrdiff_t part = first; part < last;) {
    const std::ptrdiff_t image = part / point_parts(a), inside = part % point_parts(a);
    const std::ptrdiff_t stop = std::min(last - part + inside, point_parts(a));
    Places<T, kDims> places(a, image, inside * kPoints);
    T *out = a.out + image * a.channels * a.points;
    for (std::ptrdiff_t start = inside * kPoints; start < std::min(stop * kPoints, a.points);
         start += kPoints) {
      const std::ptrdiff_t count = a.points - start < kPoints ? a.points - start : kPoints;
      find_many_taps(taps, places, count, a, outside);
      for (std::ptrdiff_t c = 0; c < a.channels; ++c) {
        const T *from = empty ? &kZero : a.x + image * a.x_strides[0] + c * a.x_strides[1];
        T *__restrict to = out + c * a.points + start;
        for (std::ptrdiff_t p = 0; p < count; ++p) {
          T sum = 0;
          for (int tap = 0; tap < taps.kCount; ++tap) {
            // Always a value that is there: no branch that depends on the data.
            const std::ptrdiff_t offset = taps.offset[tap][p];
            const T value = from[offset == kNone ? 0 : offset];
            sum += offset == kNone ? T(0) : value * taps.weight[tap][p];
          }
          to[p] = sum;
        }
      }
    }
    part += stop - inside;
  }
}

// Compiled for each way to treat places outside: the loops have no branches then.
template <int kTaps, class T>
MODTREE_ALWAYS_INLINE void sample_flat(const GridSample<T> &a, std::ptrdiff_t first,
                                       std::ptrdiff_t last) {
  switch (a.outside) {
    case Outside::zeros:
      return sample<kTaps, 2>(a, Outside::zeros, first, last);
    case Outside::border:
      return sample<kTaps, 2>(a, Outside::border, first, last);
    case Outside::reflection:
      break;
  }
  sample<kTaps, 2>(a, Outside::reflection, first, last);
}

// Cubic weights and volumes have enough to do without; they would take long to compile so often.
template <class T>
MODTREE_ALWAYS_INLINE void sample_any(const GridSample<T> &a, std::ptrdiff_t first,
                                      std::ptrdiff_t last) {
  const bool flat = a.dims == 2;
  switch (a.mode) {
    case Interpolation::nearest:
      return flat ? sample_flat<1>(a, first, last) : sample<1, 3>(a, a.outside, first, last);
    case Interpolation::linear:
      return flat ? sample_flat<2>(a, first, last) : sample<2, 3>(a, a.outside, first, last);
    case Interpolation::cubic:
      break;
  }
  sample<4, 2>(a, a.outside, first, last);
}

template <int kTaps, int kDims, class T>
MODTREE_ALWAYS_INLINE void spread(const GridSampleBackward<T> &b, std::ptrdiff_t first_image,
                                  std::ptrdiff_t last_image) {
  const GridSample<T> &a = b.forward;
  const std::ptrdiff_t plane = plane_size(a);
  PointTaps<T, kTaps, kDims> taps[kPoints];
  T slopes[kPoints][kDims];
  for (std::ptrdiff_t image = first_image; image < last_image; ++image) {
    const std::ptrdiff_t first = image * a.channels * plane;
    const T *places = a.grid + image * a.points * kDims;
    const T *g = b.g + image * a.channels * a.points;
    for (std::ptrdiff_t start = 0; start < a.points; start += kPoints) {
      const std::ptrdiff_t count = a.points - start < kPoints ? a.points - start : kPoints;
      for (std::ptrdiff_t p = 0; p < count; ++p) {
        T place[kDims];
        for (int i = 0; i < kDims; ++i) {
          place[i] = read_once(places + (start + p) * kDims + i);
        }
        find_taps(taps[p], place, a);
        for (T &slope : slopes[p]) {
          slope = 0;
        }
      }
      for (std::ptrdiff_t c = 0; c < a.channels; ++c) {
        const T *from = a.x + first + c * plane;
        const T *own = g + c * a.points + start;
        for (std::ptrdiff_t p = 0; p < count; ++p) {
          for (int tap = 0; tap < taps[p].kCount; ++tap) {
            const std::ptrdiff_t offset = taps[p].offset[tap];
            if (offset == kNone) {
              continue;
            }
            if (b.dx != nullptr) {
              b.dx[first + c * plane + offset] += own[p] * taps[p].weight[tap];
            }
            const T change = own[p] * from[offset];
            for (int i = 0; kTaps > 1 && i < kDims; ++i) {
              slopes[p][i] += change * taps[p].slope[i][tap];
            }
          }
        }
      }
      if (b.dgrid != nullptr) {
        T *to = b.dgrid + (image * a.points + start) * kDims;
        for (std::ptrdiff_t p = 0; p < count; ++p) {
          for (int i = 0; i < kDims; ++i) {
            to[p * kDims + kDims - 1 - i] = slopes[p][i];
          }
        }
      }
    }
  }
}

template <class T>
MODTREE_ALWAYS_INLINE void spread_any(const GridSampleBackward<T> &a, std::ptrdiff_t first,
                                      std::ptrdiff_t last) {
  const bool flat = a.forward.dims == 2;
  switch (a.forward.mode) {
    case Interpolation::nearest:
      return flat ? spread<1, 2>(a, first, last) : spread<1, 3>(a, first, last);
    case Interpolation::linear:
      return flat ? spread<2, 2>(a, first, last) : spread<2, 3>(a, first, last);
    case Interpolation::cubic:
      break;
  }
  spread<4, 2>(a, first, last);
}

}  // namespace

MODTREE_DEFINE_PARTS_KERNEL(grid_sample, GridSample, sample_any, a.batch *point_parts(a),
                            part_work(a))
MODTREE_DEFINE_PARTS_KERNEL(grid_sample_backward, GridSampleBackward, spread_any, a.forward.batch,
                            3.0 * part_work(a.forward) *
                                static_cast<double>(point_parts(a.forward)))

}  // namespace modtree::kernels
