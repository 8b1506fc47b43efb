// SPDX-License-Identifier: BSD-3-Clause
#include "bind/kernel_arrays.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "kernels/convolution.h"
#include "kernels/depthwise.h"
#include "kernels/dispatch.h"
#include "kernels/im2col.h"
#include "kernels/max_pool.h"

namespace modtree {
namespace {

using Maybe = std::optional<Pair>;

// So large a size in one place keeps every product of two below the limits of the integers.
constexpr py::ssize_t kLargest = py::ssize_t{1} << 30;

void check_range(const char *kernel, const char *name, py::ssize_t value, py::ssize_t least) {
  if (value < least || value > kLargest) {
    throw py::value_error(std::string(kernel) + ": " + name + " must be from " +
                          std::to_string(least) + " to " + std::to_string(kLargest) + ", got " +
                          std::to_string(value));
  }
}

// How windows are placed on axis `i` (0: rows, 1: columns), with everything checked. A given output
// size may be any: what is outside is padding.
kernels::WindowAxis window_axis(const char *name, std::size_t i, py::ssize_t size,
                                const Pair &kernel, const Pair &stride, const Pair &padding,
                                const Pair &dilation, const Maybe &output) {
  check_range(name, "an image's size", size, 0);
  check_range(name, "kernel", kernel[i], 1);
  check_range(name, "stride", stride[i], 1);
  check_range(name, "padding", padding[i], 0);
  check_range(name, "dilation", dilation[i], 1);
  const py::ssize_t span = size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
  const py::ssize_t out = output ? (*output)[i] : span < 0 ? 0 : span / stride[i] + 1;
  if (!output && out == 0) {
    throw py::value_error(std::string(name) +
                          ": the window is larger than the padded image, which has size " +
                          std::to_string(size) + " along this axis");
  }
  check_range(name, "output", out, 0);
  return {size, kernel[i], stride[i], padding[i], dilation[i], out};
}

void check_windows_inside(const char *name, const kernels::WindowAxis &axis) {
  for (py::ssize_t o = 0; o < axis.out; ++o) {
    const kernels::WindowRange range = kernels::elements_inside(axis, o);
    if (range.first == range.last) {
      throw py::value_error(
          std::string(name) + ": window " + std::to_string(o) +
          " of an axis lies wholly in the padding; use less padding or a smaller output");
    }
  }
}

// The size of the image, the last two axes.
Pair image_size(const char *name, const Array &x) {
  if (x.ndim() < 2) {
    throw py::value_error(std::string(name) +
                          ": expected at least 2 axes (..., height, width), got shape " +
                          to_string(shape_of(x)));
  }
  return {x.shape(x.ndim() - 2), x.shape(x.ndim() - 1)};
}

// The shape of x with other images.
Shape with_image(const Array &x, py::ssize_t height, py::ssize_t width) {
  Shape shape = shape_of(x);
  shape[shape.size() - 2] = height;
  shape[shape.size() - 1] = width;
  return shape;
}

py::ssize_t planes_of(const Array &x) {
  py::ssize_t planes = 1;
  for (py::ssize_t axis = 0; axis + 2 < x.ndim(); ++axis) {
    planes *= x.shape(axis);
  }
  return planes;
}

py::tuple max_pool(const Array &input, const Pair &kernel, const Maybe &stride, const Pair &padding,
                   const Pair &dilation, const Maybe &output) {
  const char *name = "max_pool";
  return with_float(name, input, [&](auto zero) {
    using T = decltype(zero);
    const Pair size = image_size(name, input);
    const Pair steps = stride.value_or(kernel);
    const auto rows = window_axis(name, 0, size[0], kernel, steps, padding, dilation, output);
    const auto columns = window_axis(name, 1, size[1], kernel, steps, padding, dilation, output);
    check_windows_inside(name, rows);
    check_windows_inside(name, columns);
    const Contiguous<T> x(input);
    const Shape shape = with_image(input, rows.out, columns.out);
    const Result<T> out(shape);
    const Result<std::int64_t> indices(shape);
    run(kernels::max_pool,
        kernels::MaxPool<T>{x.data(), out.data(), indices.data(), planes_of(input), rows, columns});
    return tuple_of(out.value(), indices.value());
  });
}

py::object max_pool_backward(const Array &g, const py::object &indices, const Pair &size) {
  const char *name = "max_pool_backward";
  return with_float(name, g, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Pair from = image_size(name, g);
    check_range(name, "size", size[0], 0);
    check_range(name, "size", size[1], 0);
    const auto places = integers(name, "indices", indices);
    if (shape_of(places) != shape_of(g)) {
      throw py::value_error(std::string(name) + ": indices must have the shape of g, " +
                            to_string(shape_of(g)) + ", got " + to_string(shape_of(places)));
    }
    const py::ssize_t plane = checked_product({size[0], size[1]});
    const Contiguous<T> grad(g);
    const Result<T> dx(with_image(g, size[0], size[1]));
    kernels::Inside inside{true};
    run(kernels::max_pool_backward,
        kernels::MaxPoolBackward<T>{grad.data(), places.data(), dx.data(), planes_of(g),
                                    from[0] * from[1], plane, &inside});
    need_inside(inside, places, plane, std::nullopt, "index ",
                " is out of range: the image's size is ");
    return dx.value();
  });
}

// The matrix of windows: (images, rows, windows), or (rows, images * windows).
struct Layout {
  Layout(const Shape &image, const kernels::WindowAxis &rows, const kernels::WindowAxis &columns,
         bool batch_last) {
    checked_product({image[0], image[1], rows.kernel, columns.kernel, rows.out, columns.out});
    const py::ssize_t height = image[1] * rows.kernel * columns.kernel;
    const py::ssize_t windows = rows.out * columns.out;
    shape = batch_last ? Shape{height, image[0] * windows} : Shape{image[0], height, windows};
    image_stride = batch_last ? windows : height * windows;
    row_stride = batch_last ? image[0] * windows : windows;
  }

  Shape shape;
  py::ssize_t image_stride, row_stride;
};

void need_four_axes(const char *name, const Shape &shape) {
  if (shape.size() != 4) {
    throw py::value_error(std::string(name) +
                          ": images must have shape (N, C, height, width), got " +
                          to_string(shape));
  }
}

py::object im2col(const Array &input, const Pair &kernel, const Pair &stride, const Pair &padding,
                  const Pair &dilation, const Maybe &output, bool batch_last,
                  const py::object &out) {
  const char *name = "im2col";
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Shape shape = shape_of(input);
    need_four_axes(name, shape);
    const auto rows = window_axis(name, 0, shape[2], kernel, stride, padding, dilation, output);
    const auto columns = window_axis(name, 1, shape[3], kernel, stride, padding, dilation, output);
    const Contiguous<T> x(input);
    const Layout layout(shape, rows, columns, batch_last);
    const auto matrix = Result<T>::into(name, out, layout.shape);
    check_overlap(name, "x", x.data(), x.nbytes(), matrix.data(), matrix.bytes(), false);
    // The kernel only reads the images here.
    run(kernels::im2col,
        kernels::Columns<T>{const_cast<T *>(x.data()), matrix.data(), shape[0], shape[1], rows,
                            columns, layout.image_stride, layout.row_stride});
    return matrix.value();
  });
}

py::object col2im(const Array &input, const Shape &shape, const Pair &kernel, const Pair &stride,
                  const Pair &padding, const Pair &dilation, const Maybe &output, bool batch_last,
                  const py::object &out) {
  const char *name = "col2im";
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    need_four_axes(name, shape);
    check_range(name, "the number of images", shape[0], 0);
    check_range(name, "the number of channels", shape[1], 0);
    const auto rows = window_axis(name, 0, shape[2], kernel, stride, padding, dilation, output);
    const auto columns = window_axis(name, 1, shape[3], kernel, stride, padding, dilation, output);
    const Layout layout(shape, rows, columns, batch_last);
    const auto matrix = argument<T>(name, "columns", input, layout.shape);
    const auto image = Result<T>::into(name, out, shape);
    check_overlap(name, "columns", matrix.data(), matrix.nbytes(), image.data(), image.bytes(),
                  false);
    // The kernel only reads the matrix here.
    run(kernels::col2im,
        kernels::Columns<T>{image.data(), const_cast<T *>(matrix.data()), shape[0], shape[1], rows,
                            columns, layout.image_stride, layout.row_stride});
    return image.value();
  });
}

py::object convolution(const Array &input, const Array &weight, const py::object &bias,
                       const Pair &stride, const Pair &padding, const Pair &dilation,
                       py::ssize_t groups, const Maybe &output) {
  const char *name = "convolution";
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Shape shape = shape_of(input), sizes = shape_of(weight);
    need_four_axes(name, shape);
    check_range(name, "groups", groups, 1);
    if (sizes.size() != 4 || sizes[0] % groups != 0 || shape[1] % groups != 0 ||
        sizes[1] != shape[1] / groups) {
      throw py::value_error(std::string(name) + ": a weight of shape " + to_string(sizes) +
                            " does not fit images of shape " + to_string(shape) + " in " +
                            std::to_string(groups) + " groups");
    }
    const Pair kernel{sizes[2], sizes[3]};
    const auto rows = window_axis(name, 0, shape[2], kernel, stride, padding, dilation, output);
    const auto columns = window_axis(name, 1, shape[3], kernel, stride, padding, dilation, output);
    constexpr double kMost = 1e10;
    if (kernels::convolution_scratch(sizes[1], rows, columns) > kMost) {
      throw py::value_error(std::string(name) + ": the padded image is too large");
    }
    const Contiguous<T> x(input);
    const auto w = argument<T>(name, "weight", weight, sizes);
    const Optional<T> b(name, "bias", bias, {sizes[0]});
    const Result<T> y({shape[0], sizes[0], rows.out, columns.out});
    run(kernels::convolution,
        kernels::Convolution<T>{x.data(), w.data(), b.data(), y.data(), shape[0], groups, sizes[1],
                                sizes[0] / groups, rows, columns});
    return y.value();
  });
}

// A single window is not followed by another one, and scratch memory grows with the stride.
kernels::WindowAxis without_idle_stride(kernels::WindowAxis axis) {
  if (axis.out <= 1) {
    axis.stride = std::min(axis.stride, std::max<py::ssize_t>(axis.size + 2 * axis.padding, 1));
  }
  return axis;
}

// The sizes of x (N, G, H, W) and y (N, O, ...) fit, or ValueError.
template <class T>
kernels::Depthwise<T> depthwise_sizes(const char *name, const Shape &x, py::ssize_t outputs,
                                      const Pair &kernel, const Pair &stride, const Pair &padding,
                                      const Pair &dilation, const Maybe &output) {
  need_four_axes(name, x);
  check_range(name, "the number of images", x[0], 0);
  check_range(name, "the number of channels", x[1], 1);
  if (outputs % x[1] != 0) {
    throw py::value_error(std::string(name) + ": expected a multiple of " + std::to_string(x[1]) +
                          " output channels, as many as there are images' channels, got " +
                          std::to_string(outputs));
  }
  const auto rows =
      without_idle_stride(window_axis(name, 0, x[2], kernel, stride, padding, dilation, output));
  const auto columns =
      without_idle_stride(window_axis(name, 1, x[3], kernel, stride, padding, dilation, output));
  constexpr double kMost = 1e10;
  if (kernels::depthwise_scratch(rows, columns) > kMost) {
    throw py::value_error(std::string(name) + ": the padded image is too large");
  }
  return {nullptr, nullptr, nullptr, x[0], x[1], outputs / x[1], rows, columns};
}

Shape weight_shape(const char *name, const Array &weight) {
  const Shape shape = shape_of(weight);
  if (shape.size() != 4 || shape[1] != 1) {
    throw py::value_error(std::string(name) +
                          ": expected a weight (O, 1, height, width), got shape " +
                          to_string(shape));
  }
  return shape;
}

// The kernels take one struct for whatever they read and write.
template <class T>
T *readable(const Contiguous<T> &array) {
  return const_cast<T *>(array.data());
}

py::object depthwise(const Array &input, const Array &weight, const Pair &stride,
                     const Pair &padding, const Pair &dilation, const Maybe &output) {
  const char *name = "depthwise";
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Shape shape = weight_shape(name, weight);
    auto a = depthwise_sizes<T>(name, shape_of(input), shape[0], {shape[2], shape[3]}, stride,
                                padding, dilation, output);
    const Contiguous<T> x(input);
    const auto w = argument<T>(name, "weight", weight, shape);
    const Result<T> y({a.images, shape[0], a.rows.out, a.columns.out});
    a.x = readable(x);
    a.weight = readable(w);
    a.y = y.data();
    run(kernels::depthwise, a);
    return y.value();
  });
}

py::object depthwise_transposed(const Array &input, const Array &weight, const Shape &shape,
                                const Pair &stride, const Pair &padding, const Pair &dilation) {
  const char *name = "depthwise_transposed";
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Shape from = shape_of(input), sizes = weight_shape(name, weight);
    need_four_axes(name, from);
    auto a = depthwise_sizes<T>(name, shape, sizes[0], {sizes[2], sizes[3]}, stride, padding,
                                dilation, Pair{from[2], from[3]});
    const auto y = argument<T>(name, "y", input, {shape[0], sizes[0], from[2], from[3]});
    const auto w = argument<T>(name, "weight", weight, sizes);
    const Result<T> x(shape);
    a.x = x.data();
    a.weight = readable(w);
    a.y = readable(y);
    run(kernels::depthwise_transposed, a);
    return x.value();
  });
}

py::object depthwise_weight(const Array &input, const Array &windows, const Pair &kernel,
                            const Pair &stride, const Pair &padding, const Pair &dilation) {
  const char *name = "depthwise_weight";
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Shape from = shape_of(windows), shape = shape_of(input);
    need_four_axes(name, from);
    auto a = depthwise_sizes<T>(name, shape, from[1], kernel, stride, padding, dilation,
                                Pair{from[2], from[3]});
    const Contiguous<T> x(input);
    const auto y = argument<T>(name, "y", windows, {shape[0], from[1], from[2], from[3]});
    const Result<T> weight({from[1], 1, kernel[0], kernel[1]});
    a.x = readable(x);
    a.weight = weight.data();
    a.y = readable(y);
    run(kernels::depthwise_weight, a);
    return weight.value();
  });
}

}  // namespace

void bind_window_kernels(Functions &m) {
  m.def_kernel<max_pool>(
      "max_pool(x, kernel, stride=None, padding=(0, 0), dilation=(1, 1), output=None)",
      "Maxima of windows over the last two axes, and their places in the image: (out, indices).");
  m.def_kernel<max_pool_backward>("max_pool_backward(g, indices, size)",
                                  "Adds g at `indices` of images of the given (height, width).");
  m.def_kernel<im2col>(
      "im2col(x, kernel, stride=(1, 1), padding=(0, 0), dilation=(1, 1), output=None, "
      "batch_last=False, out=None)",
      "Windows of (N, C, H, W) as columns: (N, C * kernel, windows), or (C * kernel, N * "
      "windows) with batch_last.");
  m.def_kernel<col2im>(
      "col2im(columns, shape, kernel, stride=(1, 1), padding=(0, 0), dilation=(1, 1), "
      "output=None, batch_last=False, out=None)",
      "Sums columns of im2col into images of the given shape (N, C, H, W).");
  m.def_kernel<convolution>(
      "convolution(x, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, "
      "output=None)",
      "Convolves (N, C, H, W) with a weight (O, C / groups, height, width): (N, O, windows).");
  m.def_kernel<depthwise>(
      "depthwise(x, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1), output=None)",
      "Convolves each channel of (N, G, H, W) by itself, with a weight (O, 1, height, width): "
      "(N, O, windows).");
  m.def_kernel<depthwise_transposed>(
      "depthwise_transposed(y, weight, shape, stride=(1, 1), padding=(0, 0), dilation=(1, 1))",
      "The gradient of depthwise's images, of the given shape (N, G, H, W), from that of its "
      "result.");
  m.def_kernel<depthwise_weight>(
      "depthwise_weight(x, y, kernel, stride=(1, 1), padding=(0, 0), dilation=(1, 1))",
      "The gradient of depthwise's weight (O, 1, height, width) from its images and the gradient "
      "of its result.");
}

}  // namespace modtree
