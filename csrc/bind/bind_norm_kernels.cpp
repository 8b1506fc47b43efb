// SPDX-License-Identifier: BSD-3-Clause
#include "bind/kernel_arrays.h"

#include <algorithm>
#include <string>

#include "kernels/batch_norm.h"
#include "kernels/group_norm.h"
#include "kernels/layer_norm.h"

namespace modtree {
namespace {

// The n values of an optional argument; empty when it is None.
template <class T>
Contiguous<T> optional_vector(const char *name, const py::object &value, py::ssize_t n) {
  if (value.is_none()) {
    return Contiguous<T>();
  }
  Contiguous<T> array(value);
  if (array.size() != n) {
    throw py::value_error(std::string("layer_norm: ") + name + " has " +
                          std::to_string(array.size()) + " values, the normalized axes have " +
                          std::to_string(n));
  }
  return array;
}

// Number of values in the last `axes` axes.
py::ssize_t normalized_size(const char *kernel, const Array &x, int axes) {
  if (axes < 1 || axes > x.ndim()) {
    throw py::value_error(std::string(kernel) + ": cannot normalize the last " +
                          std::to_string(axes) + " axes of an array with " +
                          std::to_string(x.ndim()));
  }
  py::ssize_t n = 1;
  for (py::ssize_t axis = x.ndim() - axes; axis < x.ndim(); ++axis) {
    n *= x.shape(axis);
  }
  return n;
}

template <class T>
Array layer_norm_as(const Array &x, py::ssize_t n, const py::object &weight, const py::object &bias,
                    double eps, const py::object &out, T *mean, T *rstd) {
  const auto w = optional_vector<T>("weight", weight, n);
  const auto b = optional_vector<T>("bias", bias, n);
  const T *w_data = weight.is_none() ? nullptr : w.data();
  const T *b_data = bias.is_none() ? nullptr : b.data();
  const py::ssize_t rows = n == 0 ? 0 : x.size() / n;
  return elementwise<T>("layer_norm", x, out, [=](const T *from, T *to, py::ssize_t) {
    kernels::layer_norm(from, w_data, b_data, to, mean, rstd, rows, n, eps);
  });
}

Array layer_norm(const Array &x, int axes, const py::object &weight, const py::object &bias,
                 double eps, const py::object &out) {
  const py::ssize_t n = normalized_size("layer_norm", x, axes);
  return with_float("layer_norm", x, [&](auto zero) {
    return layer_norm_as<decltype(zero)>(x, n, weight, bias, eps, out, nullptr, nullptr);
  });
}

// Statistics for each row of `n` values. Rows of nothing, which the kernel skips, have 0.
template <class T>
Result<T> statistics(const Shape &shape, py::ssize_t n) {
  Result<T> result(shape);
  if (n == 0) {
    std::fill_n(result.data(), checked_product(shape), T(0));
  }
  return result;
}

// Shape of the statistics: the axes that are not normalized.
Shape leading_shape(const Array &x, int axes) {
  const Shape shape = x.shape();
  return {shape.begin(), shape.end() - axes};
}

py::tuple layer_norm_stats(const Array &x, int axes, const py::object &weight,
                           const py::object &bias, double eps) {
  const py::ssize_t n = normalized_size("layer_norm_stats", x, axes);
  const Shape shape = leading_shape(x, axes);
  return with_float("layer_norm_stats", x, [&](auto zero) {
    using T = decltype(zero);
    const auto mean = statistics<T>(shape, n), rstd = statistics<T>(shape, n);
    auto out = layer_norm_as<T>(x, n, weight, bias, eps, py::none(), mean.data(), rstd.data());
    return tuple_of(out, mean.value(), rstd.value());
  });
}

using Wanted = Flags<3>;

py::tuple layer_norm_backward(const py::object &g, const Array &input, const py::object &mean,
                              const py::object &rstd, int axes, const py::object &weight,
                              const Wanted &wanted) {
  const char *name = "layer_norm_backward";
  const py::ssize_t n = normalized_size(name, input, axes);
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Shape leading = leading_shape(input, axes);
    const Shape shape = shape_of(input);
    const Shape normalized(shape.end() - axes, shape.end());
    const Contiguous<T> x(input);
    const auto grad = argument<T>(name, "g", g, shape_of(input));
    const auto means = argument<T>(name, "mean", mean, leading);
    const auto rstds = argument<T>(name, "rstd", rstd, leading);
    const Optional<T> w(name, "weight", weight, normalized);
    const Result<T> dx(shape_of(input), wanted[0]), dweight(normalized, wanted[1]),
        dbias(normalized, wanted[2]);
    run(kernels::layer_norm_backward,
        kernels::LayerNormBackward<T>{grad.data(), x.data(), means.data(), rstds.data(), w.data(),
                                      dx.data(), dweight.data(), dbias.data(),
                                      n == 0 ? 0 : x.size() / n, n});
    return tuple_of(dx.value(), dweight.value(), dbias.value());
  });
}

// (images, channels, positions) of an array (N, C, ...).
struct Channels {
  Channels(const char *kernel, const Array &x) {
    if (x.ndim() < 2) {
      throw py::value_error(std::string(kernel) +
                            ": expected at least 2 axes (batch, channels, ...), got shape " +
                            to_string(shape_of(x)));
    }
    images = x.shape(0);
    channels = x.shape(1);
    positions = 1;
    for (py::ssize_t axis = 2; axis < x.ndim(); ++axis) {
      positions *= x.shape(axis);
    }
  }

  py::ssize_t images, channels, positions;
};

py::tuple batch_norm(const Array &input, const py::object &weight, const py::object &bias,
                     double eps) {
  const char *name = "batch_norm";
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Channels sizes(name, input);
    const Contiguous<T> x(input);
    const Shape shape{sizes.channels};
    const Optional<T> w(name, "weight", weight, shape), b(name, "bias", bias, shape);
    const Result<T> out(shape_of(input)), mean(shape), var(shape), rstd(shape);
    run(kernels::batch_norm,
        kernels::BatchNorm<T>{x.data(), w.data(), b.data(), out.data(), mean.data(), var.data(),
                              rstd.data(), sizes.images, sizes.channels, sizes.positions, eps,
                              true});
    return tuple_of(out.value(), mean.value(), var.value(), rstd.value());
  });
}

py::tuple batch_norm_inference(const Array &input, const py::object &mean, const py::object &var,
                               const py::object &weight, const py::object &bias, double eps) {
  const char *name = "batch_norm_inference";
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Channels sizes(name, input);
    const Contiguous<T> x(input);
    const Shape shape{sizes.channels};
    const Optional<T> w(name, "weight", weight, shape), b(name, "bias", bias, shape);
    const auto means = argument<T>(name, "mean", mean, shape);
    const auto vars = argument<T>(name, "var", var, shape);
    const Result<T> out(shape_of(input)), rstd(shape);
    // The kernel only reads the statistics here.
    run(kernels::batch_norm,
        kernels::BatchNorm<T>{x.data(), w.data(), b.data(), out.data(),
                              const_cast<T *>(means.data()), const_cast<T *>(vars.data()),
                              rstd.data(), sizes.images, sizes.channels, sizes.positions, eps,
                              false});
    return tuple_of(out.value(), rstd.value());
  });
}

py::tuple batch_norm_backward(const py::object &g, const Array &input, const py::object &mean,
                              const py::object &rstd, const py::object &weight, bool training,
                              const Wanted &wanted) {
  const char *name = "batch_norm_backward";
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Channels sizes(name, input);
    const Contiguous<T> x(input);
    const Shape shape{sizes.channels};
    const auto grad = argument<T>(name, "g", g, shape_of(input));
    const auto means = argument<T>(name, "mean", mean, shape);
    const auto rstds = argument<T>(name, "rstd", rstd, shape);
    const Optional<T> w(name, "weight", weight, shape);
    const Result<T> dx(shape_of(input), wanted[0]), dweight(shape, wanted[1]),
        dbias(shape, wanted[2]);
    run(kernels::batch_norm_backward,
        kernels::BatchNormBackward<T>{grad.data(), x.data(), means.data(), rstds.data(), w.data(),
                                      dx.data(), dweight.data(), dbias.data(), sizes.images,
                                      sizes.channels, sizes.positions, training});
    return tuple_of(dx.value(), dweight.value(), dbias.value());
  });
}

// Channels of one group.
py::ssize_t group_width(const char *kernel, const Channels &sizes, py::ssize_t groups) {
  if (groups < 1 || sizes.channels % groups != 0) {
    throw py::value_error(std::string(kernel) + ": cannot divide " +
                          std::to_string(sizes.channels) + " channels into " +
                          std::to_string(groups) + " groups of the same size");
  }
  return sizes.channels / groups;
}

py::tuple group_norm(const Array &input, py::ssize_t groups, const py::object &weight,
                     const py::object &bias, double eps) {
  const char *name = "group_norm";
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Channels sizes(name, input);
    const py::ssize_t width = group_width(name, sizes, groups);
    const Contiguous<T> x(input);
    const Shape parameters{sizes.channels}, statistics{sizes.images, groups};
    const Optional<T> w(name, "weight", weight, parameters), b(name, "bias", bias, parameters);
    const Result<T> out(shape_of(input)), mean(statistics), rstd(statistics);
    run(kernels::group_norm,
        kernels::GroupNorm<T>{x.data(), w.data(), b.data(), out.data(), mean.data(), rstd.data(),
                              sizes.images, groups, width, sizes.positions, eps});
    return tuple_of(out.value(), mean.value(), rstd.value());
  });
}

py::tuple group_norm_backward(const py::object &g, const Array &input, const py::object &mean,
                              const py::object &rstd, const py::object &weight,
                              const Wanted &wanted) {
  const char *name = "group_norm_backward";
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Channels sizes(name, input);
    const py::ssize_t groups =
        is_array(mean.ptr()) && py::reinterpret_borrow<Array>(mean).ndim() == 2
            ? py::reinterpret_borrow<Array>(mean).shape(1)
            : 0;
    const py::ssize_t width = group_width(name, sizes, groups);
    const Contiguous<T> x(input);
    const Shape parameters{sizes.channels}, statistics{sizes.images, groups};
    const auto grad = argument<T>(name, "g", g, shape_of(input));
    const auto means = argument<T>(name, "mean", mean, statistics);
    const auto rstds = argument<T>(name, "rstd", rstd, statistics);
    const Optional<T> w(name, "weight", weight, parameters);
    const Result<T> dx(shape_of(input), wanted[0]), dweight(parameters, wanted[1]),
        dbias(parameters, wanted[2]);
    run(kernels::group_norm_backward,
        kernels::GroupNormBackward<T>{grad.data(), x.data(), means.data(), rstds.data(), w.data(),
                                      dx.data(), dweight.data(), dbias.data(), sizes.images, groups,
                                      width, sizes.positions});
    return tuple_of(dx.value(), dweight.value(), dbias.value());
  });
}

}  // namespace

void bind_norm_kernels(Functions &m) {
  m.def_kernel<layer_norm>(
      "layer_norm(x, axes=1, weight=None, bias=None, eps=1e-05, out=None)",
      "Normalizes over the last `axes` axes, then scales by weight and adds bias.");
  m.def_kernel<layer_norm_stats>(
      "layer_norm_stats(x, axes=1, weight=None, bias=None, eps=1e-05)",
      "layer_norm, and the mean and 1 / sqrt(var + eps) of each row: (out, mean, rstd).");
  m.def_kernel<layer_norm_backward>(
      "layer_norm_backward(g, x, mean, rstd, axes=1, weight=None, wanted=(True, True, True))",
      "Gradients (dx, dweight, dbias) of layer_norm; None for those not wanted.");
  m.def_kernel<batch_norm>(
      "batch_norm(x, weight=None, bias=None, eps=1e-05)",
      "Normalizes each channel of (N, C, ...) by its own statistics: (out, mean, var, rstd); var "
      "is biased.");
  m.def_kernel<batch_norm_inference>(
      "batch_norm_inference(x, mean, var, weight=None, bias=None, eps=1e-05)",
      "Normalizes each channel of (N, C, ...) by the given statistics: (out, rstd).");
  m.def_kernel<batch_norm_backward>(
      "batch_norm_backward(g, x, mean, rstd, weight=None, training=True, wanted=(True, True, "
      "True))",
      "Gradients (dx, dweight, dbias) of batch_norm; None for those not wanted.");
  m.def_kernel<group_norm>(
      "group_norm(x, groups, weight=None, bias=None, eps=1e-05)",
      "Normalizes groups of the channels of each image of (N, C, ...): (out, mean, rstd), "
      "statistics (N, groups).");
  m.def_kernel<group_norm_backward>(
      "group_norm_backward(g, x, mean, rstd, weight=None, wanted=(True, True, True))",
      "Gradients (dx, dweight, dbias) of group_norm; None for those not wanted.");
}

}  // namespace modtree
