// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <limits>
#include <string>

#include "bind/kernel_arrays.h"
#include "bind/parts.h"
#include "kernels/activation.h"
#include "kernels/gelu.h"
#include "kernels/softmax.h"
#include "kernels/thread_count.h"
#include "kernels/transpose.h"

namespace modtree {

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
Array rowwise(const char *name, const Array &input, const py::object &out, Rowwise<T> kernel) {
  const py::ssize_t n = input.ndim() == 0 ? 1 : input.shape(input.ndim() - 1);
  const py::ssize_t rows = n == 0 ? 0 : input.size() / n;
  return elementwise<T>(name, input, out,
                        [=](const T *x, T *to, py::ssize_t) { kernel(x, to, rows, n); });
}

Array gelu_of(const Array &x, bool tanh, const py::object &out) {
  if (float_type("gelu", x) == Float::f32) {
    return elementwise<float>(
        "gelu", x, out, tanh ? Unary<float>(kernels::gelu_tanh) : Unary<float>(kernels::gelu));
  }
  return elementwise<double>(
      "gelu", x, out, tanh ? Unary<double>(kernels::gelu_tanh) : Unary<double>(kernels::gelu));
}

Array softmax_of(const Array &x, const py::object &out) {
  if (float_type("softmax", x) == Float::f32) {
    return rowwise<float>("softmax", x, out, kernels::softmax);
  }
  return rowwise<double>("softmax", x, out, kernels::softmax);
}

Array log_softmax_of(const Array &x, const py::object &out) {
  if (float_type("log_softmax", x) == Float::f32) {
    return rowwise<float>("log_softmax", x, out, kernels::log_softmax);
  }
  return rowwise<double>("log_softmax", x, out, kernels::log_softmax);
}

template <class T>
using BinaryRows = void (*)(const T *, const T *, T *, std::ptrdiff_t, std::ptrdiff_t);

template <Unary<float> f32, Unary<double> f64>
Array unary(FunctionName name, const Array &x, const py::object &out) {
  return float_type(name.text, x) == Float::f32 ? elementwise<float>(name.text, x, out, f32)
                                                : elementwise<double>(name.text, x, out, f64);
}

// A gradient: `kernel(g, x, out, size)`; `x` decides dtype and shape.
template <class T, class Kernel>
Array gradient(const char *name, const py::object &g, const Array &x, const py::object &out,
               Kernel kernel) {
  const auto grad = argument<T>(name, "g", g, shape_of(x));
  const T *from = grad.data();
  const py::ssize_t bytes = grad.nbytes();
  return elementwise<T>(
      name, x, out, [=](const T *value, T *to, py::ssize_t n) { kernel(from, value, to, n); },
      [=](const T *to) { check_overlap(name, "g", from, bytes, to, bytes); });
}

template <Binary<float> f32, Binary<double> f64>
Array gradient_of(FunctionName name, const py::object &g, const Array &x, const py::object &out) {
  return float_type(name.text, x) == Float::f32 ? gradient<float>(name.text, g, x, out, f32)
                                                : gradient<double>(name.text, g, x, out, f64);
}

template <class T>
Array row_gradient(const char *name, const py::object &g, const Array &y, const py::object &out,
                   BinaryRows<T> kernel) {
  const py::ssize_t n = y.ndim() == 0 ? 1 : y.shape(y.ndim() - 1);
  const py::ssize_t rows = n == 0 ? 0 : y.size() / n;
  return gradient<T>(name, g, y, out, [=](const T *grad, const T *value, T *to, py::ssize_t) {
    kernel(grad, value, to, rows, n);
  });
}

template <BinaryRows<float> f32, BinaryRows<double> f64>
Array row_gradient_of(FunctionName name, const py::object &g, const Array &y,
                      const py::object &out) {
  return float_type(name.text, y) == Float::f32 ? row_gradient<float>(name.text, g, y, out, f32)
                                                : row_gradient<double>(name.text, g, y, out, f64);
}

Array gelu_backward_of(const py::object &g, const Array &x, bool tanh, const py::object &out) {
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
Array transpose_add_of(const Array &input, const py::object &bias) {
  if (input.ndim() != 2) {
    throw py::value_error("transpose_add: expected a matrix, got shape " +
                          to_string(shape_of(input)));
  }
  const Contiguous<T> x(input);
  const py::ssize_t rows = x.shape(0), columns = x.shape(1);
  const Optional<T> added("transpose_add", "bias", bias, {rows});
  ArrayOf<T> result(Shape{columns, rows});
  const T *from = x.data();
  T *to = result.mutable_data();
  {
    const GilRelease release;
    kernels::transpose_add(from, added.data(), to, rows, columns);
  }
  return result;
}

Array transpose_and_add(const Array &x, const py::object &bias) {
  return float_type("transpose_add", x) == Float::f32 ? transpose_add_of<float>(x, bias)
                                                      : transpose_add_of<double>(x, bias);
}

std::int64_t thread_count() { return kernels::thread_count(); }

void set_thread_count(std::int64_t count) {
  kernels::set_thread_count(static_cast<std::ptrdiff_t>(count));
}

}  // namespace

void bind_activation_kernels(Functions &m) {
  using namespace kernels;
  m.def_kernel<gelu_of>("gelu(x, tanh=False, out=None)", "x * Phi(x), or its tanh form.");
  m.def_kernel<softmax_of>("softmax(x, out=None)", "Softmax over the last axis.");
  m.def_kernel<log_softmax_of>("log_softmax(x, out=None)",
                               "Logarithm of the softmax over the last axis.");
  m.def_kernel<unary<sigmoid, sigmoid>>("sigmoid(x, out=None)", "1 / (1 + exp(-x)).");
  m.def_kernel<unary<silu, silu>>("silu(x, out=None)", "x / (1 + exp(-x)).");
  m.def_kernel<gelu_backward_of>("gelu_backward(g, x, tanh=False, out=None)",
                                 "g times the derivative of gelu at x.");
  m.def_kernel<gradient_of<sigmoid_backward, sigmoid_backward>>(
      "sigmoid_backward(g, y, out=None)", "g times the derivative of sigmoid, from its result y.");
  m.def_kernel<gradient_of<tanh_backward, tanh_backward>>(
      "tanh_backward(g, y, out=None)", "g times the derivative of tanh, from its result y.");
  m.def_kernel<gradient_of<silu_backward, silu_backward>>("silu_backward(g, x, out=None)",
                                                          "g times the derivative of silu at x.");
  m.def_kernel<gradient_of<relu_backward, relu_backward>>("relu_backward(g, x, out=None)",
                                                          "g, and 0 where x <= 0.");
  m.def_kernel<row_gradient_of<softmax_backward, softmax_backward>>(
      "softmax_backward(g, y, out=None)", "Gradient of the input of softmax, from its result y.");
  m.def_kernel<row_gradient_of<log_softmax_backward, log_softmax_backward>>(
      "log_softmax_backward(g, y, out=None)",
      "Gradient of the input of log_softmax, from its result y.");
  m.def_kernel<transpose_and_add>(
      "transpose_add(x, bias=None)",
      "The transpose of a matrix, with bias[i] added to what was row i.");
}

void bind_kernels(Functions &functions) {
  const py::handle module = functions.module();
  const std::string name = std::string(PyModule_GetName(module.ptr())) + ".kernels";
  const auto kernels = py::reinterpret_borrow<py::object>(PyImport_AddModule(name.c_str()));
  if (!kernels ||
      PyModule_SetDocString(
          kernels.ptr(), "Numeric kernels on float32 and float64 arrays; out may be the input.") <
          0 ||
      PyModule_AddObjectRef(module.ptr(), "kernels", kernels.ptr()) < 0) {
    throw py::error_already_set();
  }
  Functions m(kernels);
  bind_activation_kernels(m);
  bind_norm_kernels(m);
  bind_loss_kernels(m);
  bind_window_kernels(m);
  bind_optimizer_kernels(m);
  bind_recurrent_kernels(m);
  bind_product_kernels(m);
  bind_map_kernels(m);
  bind_along_kernels(m);
  bind_sample_kernels(m);
  functions.def<thread_count>("_thread_count()", "How many threads kernels use.");
  functions.def<set_thread_count>("_set_thread_count(count)",
                                  "Lets kernels use so many threads; at least one.");
}

}  // namespace modtree
