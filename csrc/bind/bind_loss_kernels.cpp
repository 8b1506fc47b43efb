// SPDX-License-Identifier: BSD-3-Clause
// Kernels that take indices, which they check where they use them.
#include "bind/kernel_arrays.h"

#include <algorithm>
#include <optional>
#include <string>

#include "kernels/cross_entropy.h"
#include "kernels/scatter.h"

namespace modtree {
namespace {

Contiguous<std::int64_t> targets_of(const char *name, const Array &logits,
                                    const py::object &targets) {
  if (logits.ndim() != 2) {
    throw py::value_error(std::string(name) + ": logits must have shape (rows, classes), got " +
                          to_string(shape_of(logits)));
  }
  auto classes = integers(name, "targets", targets);
  if (shape_of(classes) != Shape{logits.shape(0)}) {
    throw py::value_error(std::string(name) + ": targets must have shape " +
                          to_string({logits.shape(0)}) + ", got " + to_string(shape_of(classes)));
  }
  return classes;
}

void need_classes(const kernels::Inside &inside, const Contiguous<std::int64_t> &targets,
                  py::ssize_t classes, std::int64_t ignored) {
  need_inside(inside, targets, classes, ignored, "Target ",
              " is out of bounds: the number of classes is ");
}

py::tuple cross_entropy(const Array &logits, const py::object &targets, const py::object &weight,
                        std::int64_t ignore_index, double label_smoothing) {
  const char *name = "cross_entropy";
  return with_float(name, logits, [&](auto zero) {
    using T = decltype(zero);
    const auto classes = targets_of(name, logits, targets);
    const Contiguous<T> x(logits);
    const py::ssize_t rows = x.shape(0), n = x.shape(1);
    const Optional<T> w(name, "weight", weight, {n});
    const Result<T> loss({rows}), logsumexp({rows});
    kernels::Inside inside{true};
    run(kernels::cross_entropy,
        kernels::CrossEntropy<T>{x.data(), classes.data(), w.data(), loss.data(), logsumexp.data(),
                                 rows, n, ignore_index, label_smoothing, &inside});
    need_classes(inside, classes, n, ignore_index);
    return tuple_of(loss.value(), logsumexp.value());
  });
}

py::object cross_entropy_backward(const py::object &g, const Array &logits,
                                  const py::object &targets, const py::object &logsumexp,
                                  const py::object &weight, std::int64_t ignore_index,
                                  double label_smoothing) {
  const char *name = "cross_entropy_backward";
  return with_float(name, logits, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const auto classes = targets_of(name, logits, targets);
    const Contiguous<T> x(logits);
    const py::ssize_t rows = x.shape(0), n = x.shape(1);
    const auto grad = argument<T>(name, "g", g, {rows});
    const auto sums = argument<T>(name, "logsumexp", logsumexp, {rows});
    const Optional<T> w(name, "weight", weight, {n});
    const Result<T> dx(shape_of(logits));
    kernels::Inside inside{true};
    run(kernels::cross_entropy_backward,
        kernels::CrossEntropyBackward<T>{grad.data(), x.data(), classes.data(), w.data(),
                                         sums.data(), dx.data(), rows, n, ignore_index,
                                         label_smoothing, &inside});
    need_classes(inside, classes, n, ignore_index);
    return dx.value();
  });
}

// Of all axes but the last.
Shape leading_shape(const Array &x) {
  Shape shape = shape_of(x);
  shape.pop_back();
  return shape;
}

py::object scatter_add_rows(const py::object &indices, const Array &g, py::ssize_t rows,
                            std::optional<std::int64_t> skip) {
  const char *name = "scatter_add_rows";
  return with_float(name, g, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const auto places = integers(name, "indices", indices);
    if (rows < 0) {
      throw py::value_error(std::string(name) + ": rows must not be negative, got " +
                            std::to_string(rows));
    }
    if (g.ndim() < 1 || shape_of(places) != leading_shape(g)) {
      throw py::value_error(
          std::string(name) + ": g must have the shape of indices and one axis more, got " +
          to_string(shape_of(g)) + " for indices of " + to_string(shape_of(places)));
    }
    const Contiguous<T> from(g);
    const py::ssize_t width = g.shape(g.ndim() - 1);
    checked_product({rows, width});
    ArrayOf<T> out(Shape{rows, width});
    T *to = out.mutable_data();
    const T *data = from.data();
    const std::int64_t *at = places.data();
    const py::ssize_t n = places.size();
    kernels::Inside inside{true};
    {
      const GilRelease release;
      std::fill(to, to + rows * width, T(0));
      kernels::scatter_add_rows(at, data, to, n, width, skip ? &*skip : nullptr, rows, &inside);
    }
    need_inside(inside, places, rows, skip, "index ", " is out of range: the number of rows is ");
    return std::move(out);
  });
}

}  // namespace

void bind_loss_kernels(Functions &m) {
  m.def_kernel<cross_entropy>(
      "cross_entropy(logits, targets, weight=None, ignore_index=-100, label_smoothing=0.0)",
      "Loss of each row of logits (rows, classes), without reduction, and its log-sum-exp: "
      "(loss, logsumexp).");
  m.def_kernel<cross_entropy_backward>(
      "cross_entropy_backward(g, logits, targets, logsumexp, "
      "weight=None, ignore_index=-100, label_smoothing=0.0)",
      "Gradient of the logits, from the gradient of each row's loss.");
  m.def_kernel<scatter_add_rows>(
      "scatter_add_rows(indices, g, rows, skip=None)",
      "Zeros of shape (rows, width) to which row i of g is added at indices[i]; an index of "
      "`skip` is left out.");
}

}  // namespace modtree
