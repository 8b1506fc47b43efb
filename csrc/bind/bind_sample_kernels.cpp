// SPDX-License-Identifier: BSD-3-Clause
// Kernels that read at computed places or between pairs: grid_sample, distances, ctc.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "bind/dense_arrays.h"
#include "bind/kernel_arrays.h"
#include "kernels/ctc.h"
#include "kernels/distance.h"
#include "kernels/grid_sample.h"

namespace modtree {
namespace {

// --- grid_sample

kernels::Interpolation interpolation(const std::string &mode) {
  if (mode == "nearest") {
    return kernels::Interpolation::nearest;
  }
  if (mode == "bilinear") {
    return kernels::Interpolation::linear;
  }
  if (mode == "bicubic") {
    return kernels::Interpolation::cubic;
  }
  throw py::value_error("grid_sample: mode must be nearest, bilinear or bicubic, got " + mode);
}

kernels::Outside outside_of(const std::string &padding) {
  if (padding == "zeros") {
    return kernels::Outside::zeros;
  }
  if (padding == "border") {
    return kernels::Outside::border;
  }
  if (padding == "reflection") {
    return kernels::Outside::reflection;
  }
  throw py::value_error("grid_sample: padding must be zeros, border or reflection, got " + padding);
}

// The array itself where its values can be read in place, a contiguous copy otherwise.
template <class T>
Array as_it_lies(const Array &array) {
  return readable_as<T>(array) ? array : Contiguous<T>(array);
}

// Strides in values.
template <class T>
py::ssize_t stride_of(const Array &array, py::ssize_t axis) {
  return array.strides(axis) / static_cast<py::ssize_t>(sizeof(T));
}

// The arrays, with everything checked, and what a kernel needs to know of them. In place: arrays of
// any strides, which the kernel forward takes.
template <class T>
struct Sampling {
  Sampling(const Array &input, const py::object &places, const std::string &mode,
           const std::string &padding, bool align, bool in_place)
      : x(in_place ? as_it_lies<T>(input) : Contiguous<T>(input)),
        dims(input.ndim() - 2) {
    const char *name = "grid_sample";
    if (dims != 2 && dims != 3) {
      throw py::value_error(std::string(name) + ": expected an array of 4 or 5 axes, got shape " +
                            to_string(shape_of(input)));
    }
    if (!is_array(places.ptr())) {
      throw py::type_error(std::string(name) + ": grid must be an array");
    }
    Shape shape = shape_of(py::reinterpret_borrow<Array>(places));
    out_shape = {input.shape(0), input.shape(1)};
    a = {};
    a.points = 1;
    for (std::size_t i = 1; i + 1 < shape.size(); ++i) {
      out_shape.push_back(shape[i]);
      a.points *= shape[i];
    }
    if (static_cast<py::ssize_t>(shape.size()) == input.ndim()) {
      shape.front() = input.shape(0);
      shape.back() = dims;
    } else {
      shape = shape_of(input);
    }
    const auto given = py::reinterpret_borrow<Array>(places);
    grid = in_place && readable_as<T>(given) && shape_of(given) == shape
               ? given
               : argument<T>(name, "grid", places, shape);
    checked_product(out_shape);
    a.x = static_cast<const T *>(x.data());
    a.grid = static_cast<const T *>(grid.data());
    a.batch = x.shape(0);
    a.channels = x.shape(1);
    for (py::ssize_t i = 0; i < dims; ++i) {
      a.sizes[i] = x.shape(i + 2);
    }
    a.dims = static_cast<int>(dims);
    a.mode = interpolation(mode);
    a.outside = outside_of(padding);
    a.align_corners = align;
    if (a.mode == kernels::Interpolation::cubic && dims == 3) {
      throw py::value_error(std::string(name) + ": bicubic is for images, not for volumes");
    }
    kernels::set_packed_strides(a);
    if (in_place) {
      set_strides();
    }
  }

  void set_strides() {
    for (py::ssize_t i = 0; i < x.ndim(); ++i) {
      a.x_strides[i] = stride_of<T>(x, i);
    }
    a.grid_strides[0] = stride_of<T>(grid, 0);
    a.grid_strides[4] = stride_of<T>(grid, dims + 1);
    for (py::ssize_t i = 0; i < 3; ++i) {
      const py::ssize_t axis = i + dims - 2;  // of the grid; images lack the first of the three
      a.point_sizes[i] = axis > 0 ? grid.shape(axis) : 1;
      a.grid_strides[1 + i] = axis > 0 ? stride_of<T>(grid, axis) : 0;
    }
  }

  Array x;
  py::ssize_t dims;
  Array grid;
  Shape out_shape;
  kernels::GridSample<T> a;
};

py::object grid_sample(const Array &x, const py::object &grid, const std::string &mode,
                       const std::string &padding, bool align) {
  return with_float("grid_sample", x, [&](auto zero) -> py::object {
    using T = decltype(zero);
    Sampling<T> sampling(x, grid, mode, padding, align, true);
    const Result<T> out(sampling.out_shape);
    sampling.a.out = out.data();
    run_unless_empty(sampling.grid, kernels::grid_sample, sampling.a);
    return out.value();
  });
}

py::tuple grid_sample_backward(const py::object &g, const Array &x, const py::object &grid,
                               const std::string &mode, const std::string &padding, bool align,
                               bool for_input, bool for_grid) {
  const char *name = "grid_sample_backward";
  return with_float(name, x, [&](auto zero) {
    using T = decltype(zero);
    const Sampling<T> sampling(x, grid, mode, padding, align, false);
    const auto gradient = argument<T>(name, "g", g, sampling.out_shape);
    const Result<T> dx(shape_of(x), for_input);
    const Result<T> dgrid(shape_of(sampling.grid), for_grid);
    if (dx.data() != nullptr) {
      std::fill(dx.data(), dx.data() + x.size(), T(0));
    }
    run_unless_empty(
        sampling.grid, kernels::grid_sample_backward,
        kernels::GridSampleBackward<T>{sampling.a, gradient.data(), dx.data(), dgrid.data()});
    return tuple_of(dx.value(), dgrid.value());
  });
}

// --- distances

kernels::Norm norm_of(double p) {
  if (!(p >= 0)) {
    throw py::value_error("distance: p must not be negative, got " + std::to_string(p));
  }
  return p == 0          ? kernels::Norm::zero
         : p == 1        ? kernels::Norm::one
         : p == 2        ? kernels::Norm::two
         : std::isinf(p) ? kernels::Norm::infinity
                         : kernels::Norm::other;
}

void need_three_axes(const char *name, const Array &x) {
  if (x.ndim() != 3) {
    throw py::value_error(std::string(name) + ": expected shape (batch, points, width), got " +
                          to_string(shape_of(x)));
  }
}

// The shape of the other points, columns of a matrix: (batch, width, columns).
Shape columns_shape(const char *name, const Array &x, const py::object &yt) {
  need_three_axes(name, x);
  if (!is_array(yt.ptr()) || py::reinterpret_borrow<Array>(yt).ndim() != 3) {
    throw py::value_error(std::string(name) + ": yt must be an array of 3 axes");
  }
  return {x.shape(0), x.shape(2), py::reinterpret_borrow<Array>(yt).shape(2)};
}

py::object distance(const Array &input, const py::object &yt, double p) {
  const char *name = "distance";
  const kernels::Norm norm = norm_of(p);
  const Shape shape = columns_shape(name, input, yt);
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Contiguous<T> x(input);
    const auto y = argument<T>(name, "yt", yt, shape);
    const py::ssize_t batch = x.shape(0), rows = x.shape(1), width = x.shape(2), columns = shape[2];
    const Result<T> out({batch, rows, columns});
    const T *from = x.data(), *other = y.data();
    T *to = out.data();
    if (out.bytes() != 0) {
      const GilRelease release;
      for (py::ssize_t i = 0; i < batch; ++i) {
        kernels::distance(kernels::Distance<T>{from + i * rows * width, other + i * width * columns,
                                               to + i * rows * columns, rows, columns, width, norm,
                                               p});
      }
    }
    return out.value();
  });
}

py::tuple distance_backward(const py::object &g, const py::object &distances, const Array &input,
                            const py::object &yt, double p) {
  const char *name = "distance_backward";
  const kernels::Norm norm = norm_of(p);
  const Shape shape = columns_shape(name, input, yt);
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Contiguous<T> x(input);
    const auto y = argument<T>(name, "yt", yt, shape);
    const py::ssize_t batch = x.shape(0), rows = x.shape(1), width = x.shape(2), columns = shape[2];
    const auto gradient = argument<T>(name, "g", g, {batch, rows, columns});
    const auto sizes = argument<T>(name, "distances", distances, {batch, rows, columns});
    const Result<T> dx(shape_of(input)), dyt(shape);
    const T *from = x.data(), *other = y.data(), *grad = gradient.data(), *size = sizes.data();
    T *to = dx.data(), *to_other = dyt.data();
    if (dx.bytes() != 0 || dyt.bytes() != 0) {
      const GilRelease release;
      std::fill(to_other, to_other + y.size(), T(0));
      for (py::ssize_t i = 0; i < batch; ++i) {
        kernels::distance_backward(kernels::DistanceBackward<T>{
            grad + i * rows * columns, size + i * rows * columns, from + i * rows * width,
            other + i * width * columns, to + i * rows * width, to_other + i * width * columns,
            rows, columns, width, norm, p});
      }
    }
    return tuple_of(dx.value(), dyt.value());
  });
}

// --- ctc

// Labels and lengths, with everything checked that the kernel relies on.
struct Sequences {
  Sequences(const Array &log_probs, const py::object &labels_, const py::object &starts_,
            const py::object &lengths_, const py::object &used_, std::int64_t blank)
      : labels(own_integers("ctc", "labels", labels_)),
        starts(own_integers("ctc", "starts", starts_)),
        lengths(own_integers("ctc", "lengths", lengths_)),
        used(own_integers("ctc", "used", used_)) {
    if (log_probs.ndim() != 3) {
      throw py::value_error("ctc: expected log probabilities (steps, batch, classes), got shape " +
                            to_string(shape_of(log_probs)));
    }
    const py::ssize_t steps = log_probs.shape(0), batch = log_probs.shape(1);
    const py::ssize_t classes = log_probs.shape(2);
    if (starts.size() != batch || lengths.size() != batch || used.size() != batch) {
      throw py::value_error("ctc: starts, lengths and used must have " + std::to_string(batch) +
                            " values");
    }
    if (blank < 0 || blank >= classes) {
      throw py::index_error("ctc: blank must be from 0 to " + std::to_string(classes - 1) +
                            ", got " + std::to_string(blank));
    }
    for (py::ssize_t i = 0; i < batch; ++i) {
      const std::int64_t start = starts.data()[i], length = lengths.data()[i];
      if (start < 0 || length < 0 || start > labels.size() || length > labels.size() - start ||
          used.data()[i] < 0 || used.data()[i] > steps) {
        throw py::index_error("ctc: the lengths of sample " + std::to_string(i) +
                              " are out of range");
      }
      for (std::int64_t j = 0; j < length; ++j) {
        const std::int64_t label = labels.data()[start + j];
        if (label < 0 || label >= classes) {
          throw py::index_error("ctc: label " + std::to_string(label) +
                                " is out of range: the number of classes is " +
                                std::to_string(classes));
        }
      }
      longest = std::max(longest, static_cast<py::ssize_t>(length));
    }
    checked_product({steps + 1, 2 * longest + 3});
  }

  Contiguous<std::int64_t> labels, starts, lengths, used;
  py::ssize_t longest = 0;
};

// The losses; with g, their gradients, (losses, gradient of the log probabilities).
py::object ctc(const Array &input, const py::object &labels, const py::object &starts,
               const py::object &lengths, const py::object &used, std::int64_t blank,
               const py::object &g) {
  const char *name = "ctc";
  const Sequences sequences(input, labels, starts, lengths, used, blank);
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Contiguous<T> x(input);
    const py::ssize_t steps = x.shape(0), batch = x.shape(1), classes = x.shape(2);
    const Optional<T> gradients(name, "g", g, {batch});
    const Result<T> losses({batch});
    const Result<T> dx(shape_of(input), !g.is_none());
    if (dx.data() != nullptr) {
      std::fill(dx.data(), dx.data() + x.size(), T(0));
    }
    run_unless_empty(sequences.used, kernels::ctc,
                     kernels::Ctc<T>{x.data(), sequences.labels.data(), sequences.starts.data(),
                                     sequences.lengths.data(), sequences.used.data(), losses.data(),
                                     gradients.data(), dx.data(), steps, batch, classes,
                                     sequences.longest, blank});
    return g.is_none() ? losses.value() : py::object(tuple_of(losses.value(), dx.value()));
  });
}

}  // namespace

void bind_sample_kernels(Functions &m) {
  m.def_kernel<grid_sample>(
      "grid_sample(x, grid, mode, padding, align)",
      "Images or volumes (batch, channels, ...) read at the places of a grid (batch, ..., axes).");
  m.def_kernel<grid_sample_backward>(
      "grid_sample_backward(g, x, grid, mode, padding, align, for_input=True, for_grid=True)",
      "Gradients of x and grid; None for one that is not wanted.");
  m.def_kernel<distance>(
      "distance(x, yt, p)",
      "p-norm distances of the rows of x (batch, rows, width) to the columns of yt (batch, width, "
      "columns).");
  m.def_kernel<distance_backward>("distance_backward(g, distances, x, yt, p)",
                                  "Gradients of x and yt.");
  m.def_kernel<ctc>(
      "ctc(log_probs, labels, starts, lengths, used, blank, g=None)",
      "The loss of each sample; with its gradient g also the gradient of the log probabilities.");
}

}  // namespace modtree
