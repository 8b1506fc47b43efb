// SPDX-License-Identifier: BSD-3-Clause
#include "bind/bind_kernels.h"

#include <cstdint>
#include <limits>
#include <string>

#include "bind/kernel_arrays.h"
#include "kernels/activation.h"
#include "kernels/gelu.h"
#include "kernels/softmax.h"
#include "kernels/transpose.h"

namespace modtree {

Float float_type(const char *kernel, const py::array &x) {
  const int number = x.dtype().num();
  if (number == py::dtype::num_of<float>()) {
    return Float::f32;
  }
  if (number == py::dtype::num_of<double>()) {
    return Float::f64;
  }
  throw py::type_error(std::string(kernel) + ": expected an array of float32 or float64, got " +
                       py::str(x.dtype()).cast<std::string>());
}

std::string to_string(const Shape &shape) {
  std::string text = "(";
  for (py::ssize_t size : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

py::ssize_t checked_product(const Shape &sizes) {
  constexpr py::ssize_t kMost =
      std::numeric_limits<py::ssize_t>::max() / 16;  // in bytes, of doubles, with room to spare
  py::ssize_t product = 1;
  bool empty = false;
  for (const py::ssize_t size : sizes) {
    if (size < 0 || (size != 0 && product > kMost / size)) {
      throw py::value_error("an array of shape " + to_string(sizes) + " is not possible");
    }
    empty = empty || size == 0;
    product *= size == 0 ? 1 : size;
  }
  return empty ? 0 : product;
}

void check_overlap(const char *kernel, const char *name, const void *read, py::ssize_t read_bytes,
                   const void *out, py::ssize_t out_bytes, bool may_be_same) {
  const auto a = reinterpret_cast<std::uintptr_t>(read), b = reinterpret_cast<std::uintptr_t>(out);
  const bool apart = a + static_cast<std::uintptr_t>(read_bytes) <= b ||
                     b + static_cast<std::uintptr_t>(out_bytes) <= a;
  if (read_bytes != 0 && out_bytes != 0 && !apart && !(may_be_same && a == b)) {
    throw py::value_error(std::string(kernel) + ": out must not share memory with " + name +
                          (may_be_same ? ", unless it is the same array" : ""));
  }
}

Contiguous<std::int64_t> integers(const char *kernel, const char *name, const py::object &value) {
  const bool array = py::isinstance<py::array>(value);
  const char kind = array ? py::reinterpret_borrow<py::array>(value).dtype().kind() : 'O';
  if (kind != 'i' && kind != 'u') {
    throw py::type_error(
        std::string(kernel) + ": " + name + " must be an array of integers, got " +
        (array ? py::str(value.attr("dtype")).cast<std::string>() : Py_TYPE(value.ptr())->tp_name));
  }
  return Contiguous<std::int64_t>(value);
}

void check_indices(const Contiguous<std::int64_t> &indices, py::ssize_t limit,
                   std::optional<std::int64_t> allowed, const char *before, const char *after) {
  const std::int64_t *data = indices.data();
  for (py::ssize_t i = 0; i < indices.size(); ++i) {
    if ((data[i] < 0 || data[i] >= limit) && data[i] != allowed) {
      throw py::index_error(before + std::to_string(data[i]) + after + std::to_string(limit));
    }
  }
}

namespace {

template <class T>
using Unary = void (*)(const T *, T *, std::ptrdiff_t);
template <class T>
using Binary = void (*)(const T *, const T *, T *, std::ptrdiff_t);
template <class T>
using Rowwise = void (*)(const T *, T *, std::ptrdiff_t, std::ptrdiff_t);

// Runs `kernel(x, out, rows, n)` without the GIL, over the rows of the last axis; a 0-d array is
// one row of one value.
template <class T>
py::array rowwise(const char *name, const py::array &input, const py::object &out,
                  Rowwise<T> kernel) {
  const py::ssize_t n = input.ndim() == 0 ? 1 : input.shape(input.ndim() - 1);
  const py::ssize_t rows = n == 0 ? 0 : input.size() / n;
  return elementwise<T>(name, input, out,
                        [=](const T *x, T *to, py::ssize_t) { kernel(x, to, rows, n); });
}

py::array gelu(const py::array &x, bool tanh, const py::object &out) {
  if (float_type("gelu", x) == Float::f32) {
    return elementwise<float>(
        "gelu", x, out, tanh ? Unary<float>(kernels::gelu_tanh) : Unary<float>(kernels::gelu));
  }
  return elementwise<double>(
      "gelu", x, out, tanh ? Unary<double>(kernels::gelu_tanh) : Unary<double>(kernels::gelu));
}

py::array softmax(const py::array &x, const py::object &out) {
  if (float_type("softmax", x) == Float::f32) {
    return rowwise<float>("softmax", x, out, kernels::softmax);
  }
  return rowwise<double>("softmax", x, out, kernels::softmax);
}

py::array log_softmax(const py::array &x, const py::object &out) {
  if (float_type("log_softmax", x) == Float::f32) {
    return rowwise<float>("log_softmax", x, out, kernels::log_softmax);
  }
  return rowwise<double>("log_softmax", x, out, kernels::log_softmax);
}

template <class T>
using BinaryRows = void (*)(const T *, const T *, T *, std::ptrdiff_t, std::ptrdiff_t);

py::array unary(const char *name, const py::array &x, const py::object &out, Unary<float> f32,
                Unary<double> f64) {
  if (float_type(name, x) == Float::f32) {
    return elementwise<float>(name, x, out, f32);
  }
  return elementwise<double>(name, x, out, f64);
}

// A gradient: `kernel(g, x, out, size)`; `x` decides dtype and shape.
template <class T, class Kernel>
py::array gradient(const char *name, const py::object &g, const py::array &x, const py::object &out,
                   Kernel kernel) {
  const auto grad = argument<T>(name, "g", g, shape_of(x));
  const T *from = grad.data();
  const py::ssize_t bytes = grad.nbytes();
  return elementwise<T>(
      name, x, out, [=](const T *value, T *to, py::ssize_t n) { kernel(from, value, to, n); },
      [=](const T *to) { check_overlap(name, "g", from, bytes, to, bytes); });
}

void def_gradient(py::module_ &m, const char *name, const char *saved, const char *doc,
                  Binary<float> f32, Binary<double> f64) {
  m.def(
      name,
      [=](const py::object &g, const py::array &x, const py::object &out) {
        if (float_type(name, x) == Float::f32) {
          return gradient<float>(name, g, x, out, f32);
        }
        return gradient<double>(name, g, x, out, f64);
      },
      py::arg("g"), py::arg(saved), py::arg("out") = py::none(), doc);
}

template <class T>
py::array row_gradient(const char *name, const py::object &g, const py::array &y,
                       const py::object &out, BinaryRows<T> kernel) {
  const py::ssize_t n = y.ndim() == 0 ? 1 : y.shape(y.ndim() - 1);
  const py::ssize_t rows = n == 0 ? 0 : y.size() / n;
  return gradient<T>(name, g, y, out, [=](const T *grad, const T *value, T *to, py::ssize_t) {
    kernel(grad, value, to, rows, n);
  });
}

void def_row_gradient(py::module_ &m, const char *name, const char *doc, BinaryRows<float> f32,
                      BinaryRows<double> f64) {
  m.def(
      name,
      [=](const py::object &g, const py::array &y, const py::object &out) {
        return float_type(name, y) == Float::f32 ? row_gradient<float>(name, g, y, out, f32)
                                                 : row_gradient<double>(name, g, y, out, f64);
      },
      py::arg("g"), py::arg("y"), py::arg("out") = py::none(), doc);
}

py::array gelu_backward(const py::object &g, const py::array &x, bool tanh, const py::object &out) {
  if (float_type("gelu_backward", x) == Float::f32) {
    const Binary<float> kernel =
        tanh ? Binary<float>(kernels::gelu_tanh_backward) : Binary<float>(kernels::gelu_backward);
    return gradient<float>("gelu_backward", g, x, out, kernel);
  }
  const Binary<double> kernel =
      tanh ? Binary<double>(kernels::gelu_tanh_backward) : Binary<double>(kernels::gelu_backward);
  return gradient<double>("gelu_backward", g, x, out, kernel);
}

template <class T>
py::array transpose_add_of(const py::array &input, const py::object &bias) {
  if (input.ndim() != 2) {
    throw py::value_error("transpose_add: expected a matrix, got shape " +
                          to_string(shape_of(input)));
  }
  const Contiguous<T> x(input);
  const py::ssize_t rows = x.shape(0), columns = x.shape(1);
  const Optional<T> added("transpose_add", "bias", bias, {rows});
  py::array_t<T> result(Shape{columns, rows});
  const T *from = x.data();
  T *to = result.mutable_data();
  {
    py::gil_scoped_release release;
    kernels::transpose_add(from, added.data(), to, rows, columns);
  }
  return result;
}

py::array transpose_add(const py::array &x, const py::object &bias) {
  return float_type("transpose_add", x) == Float::f32 ? transpose_add_of<float>(x, bias)
                                                      : transpose_add_of<double>(x, bias);
}

}  // namespace

void bind_kernels(py::module_ &m) {
  // pybind11 looks NumPy's functions up at first use and imports a module of NumPy for it, once.
  // Code that runs meanwhile (a signal handler, a trace function) and calls a kernel would wait for
  // itself.
  py::detail::npy_api::get();
  auto sub = m.def_submodule(
      "kernels", "Numeric kernels on float32 and float64 arrays; out may be the input.");
  sub.def("gelu", &gelu, py::arg("x"), py::arg("tanh") = false, py::arg("out") = py::none(),
          "x * Phi(x), or its tanh form.");
  sub.def("softmax", &softmax, py::arg("x"), py::arg("out") = py::none(),
          "Softmax over the last axis.");
  sub.def("log_softmax", &log_softmax, py::arg("x"), py::arg("out") = py::none(),
          "Logarithm of the softmax over the last axis.");
  sub.def(
      "sigmoid",
      [](const py::array &x, const py::object &out) {
        return unary("sigmoid", x, out, kernels::sigmoid, kernels::sigmoid);
      },
      py::arg("x"), py::arg("out") = py::none(), "1 / (1 + exp(-x)).");
  sub.def(
      "silu",
      [](const py::array &x, const py::object &out) {
        return unary("silu", x, out, kernels::silu, kernels::silu);
      },
      py::arg("x"), py::arg("out") = py::none(), "x / (1 + exp(-x)).");
  sub.def("gelu_backward", &gelu_backward, py::arg("g"), py::arg("x"), py::arg("tanh") = false,
          py::arg("out") = py::none(), "g times the derivative of gelu at x.");
  def_gradient(sub, "sigmoid_backward", "y",
               "g times the derivative of sigmoid, from its result y.", kernels::sigmoid_backward,
               kernels::sigmoid_backward);
  def_gradient(sub, "tanh_backward", "y", "g times the derivative of tanh, from its result y.",
               kernels::tanh_backward, kernels::tanh_backward);
  def_gradient(sub, "silu_backward", "x", "g times the derivative of silu at x.",
               kernels::silu_backward, kernels::silu_backward);
  def_gradient(sub, "relu_backward", "x", "g, and 0 where x <= 0.", kernels::relu_backward,
               kernels::relu_backward);
  def_row_gradient(sub, "softmax_backward", "Gradient of the input of softmax, from its result y.",
                   kernels::softmax_backward, kernels::softmax_backward);
  def_row_gradient(sub, "log_softmax_backward",
                   "Gradient of the input of log_softmax, from its result y.",
                   kernels::log_softmax_backward, kernels::log_softmax_backward);
  sub.def("transpose_add", &transpose_add, py::arg("x"), py::arg("bias") = py::none(),
          "The transpose of a matrix, with bias[i] added to what was row i.");
  bind_norm_kernels(sub);
  bind_loss_kernels(sub);
  bind_window_kernels(sub);
  bind_optimizer_kernels(sub);
  bind_recurrent_kernels(sub);
  bind_map_kernels(sub);
  bind_along_kernels(sub);
  bind_sample_kernels(sub);
}

}  // namespace modtree
