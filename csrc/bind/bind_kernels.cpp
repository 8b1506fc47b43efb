// SPDX-License-Identifier: BSD-3-Clause
// Kernels that go element by element or row by row, and the submodule of all kernels.
#include <cstdint>
#include <limits>
#include <string>

#include "bind/dense_arrays.h"
#include "bind/parts.h"
#include "kernels/activation.h"
#include "kernels/gelu.h"
#include "kernels/pointwise.h"
#include "kernels/softmax.h"
#include "kernels/special.h"
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

template <Rowwise<float> f32, Rowwise<double> f64>
Array rowwise_of(FunctionName name, const Array &x, const py::object &out) {
  return float_type(name.text, x) == Float::f32 ? rowwise<float>(name.text, x, out, f32)
                                                : rowwise<double>(name.text, x, out, f64);
}

Array gelu_of(const Array &x, bool tanh, const py::object &out) {
  return with_float("gelu", x, [&](auto zero) {
    using T = decltype(zero);
    return elementwise<T>("gelu", x, out,
                          tanh ? Unary<T>(kernels::gelu_tanh) : Unary<T>(kernels::gelu));
  });
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
  const char *name = "gelu_backward";
  return with_float(name, x, [&](auto zero) {
    using T = decltype(zero);
    return gradient<T>(name, g, x, out,
                       tanh ? Binary<T>(kernels::gelu_tanh_backward)
                            : Binary<T>(kernels::gelu_backward));
  });
}

Array transpose_and_add(const Array &input, const py::object &bias) {
  const char *name = "transpose_add";
  return with_float(name, input, [&](auto zero) -> Array {
    using T = decltype(zero);
    if (input.ndim() != 2) {
      throw py::value_error(std::string(name) + ": expected a matrix, got shape " +
                            to_string(shape_of(input)));
    }
    const Contiguous<T> x(input);
    const py::ssize_t rows = x.shape(0), columns = x.shape(1);
    const Optional<T> added(name, "bias", bias, {rows});
    ArrayOf<T> result(Shape{columns, rows});
    const T *from = x.data();
    T *to = result.mutable_data();
    {
      const GilRelease release;
      kernels::transpose_add(from, added.data(), to, rows, columns);
    }
    return std::move(result);
  });
}

// --- element by element, in any layout

template <class T>
using Map = void (*)(const T *, T *, std::ptrdiff_t, T, T);
template <class T>
using PairMap = void (*)(const T *, const T *, T *, std::ptrdiff_t, T, T);

template <Unary<float> f32, Unary<double> f64>
Array map(FunctionName name, const Array &x, const py::object &out) {
  return float_type(name.text, x) == Float::f32 ? map_dense<float>(name.text, x, out, f32)
                                                : map_dense<double>(name.text, x, out, f64);
}

template <Binary<float> f32, Binary<double> f64>
Array map_pair(FunctionName name, const Array &x, const Array &y) {
  return float_type(name.text, x) == Float::f32 ? map_dense_pair<float>(name.text, x, y, f32)
                                                : map_dense_pair<double>(name.text, x, y, f64);
}

template <class T>
Array map_by(const char *name, const Array &x, double a, double b, const py::object &out,
             Map<T> kernel) {
  return map_dense<T>(name, x, out, [=](const T *from, T *to, py::ssize_t n) {
    kernel(from, to, n, static_cast<T>(a), static_cast<T>(b));
  });
}

template <Map<float> f32, Map<double> f64>
Array map_with(FunctionName name, const Array &x, double a, double b, const py::object &out) {
  return float_type(name.text, x) == Float::f32 ? map_by<float>(name.text, x, a, b, out, f32)
                                                : map_by<double>(name.text, x, a, b, out, f64);
}

template <class T>
Array map_pair_by(const char *name, const Array &x, const Array &y, double a, double b,
                  PairMap<T> kernel) {
  return map_dense_pair<T>(name, x, y, [=](const T *p, const T *q, T *to, py::ssize_t n) {
    kernel(p, q, to, n, static_cast<T>(a), static_cast<T>(b));
  });
}

template <PairMap<float> f32, PairMap<double> f64>
Array map_pair_with(FunctionName name, const Array &x, const Array &y, double a, double b) {
  return float_type(name.text, x) == Float::f32 ? map_pair_by<float>(name.text, x, y, a, b, f32)
                                                : map_pair_by<double>(name.text, x, y, a, b, f64);
}

// --- threads

std::int64_t thread_count() { return kernels::thread_count(); }

void set_thread_count(std::int64_t count) {
  kernels::set_thread_count(static_cast<std::ptrdiff_t>(count));
}

void bind_activation_kernels(Functions &m) {
  using namespace kernels;
  m.def_kernel<gelu_of>("gelu(x, tanh=False, out=None)", "x * Phi(x), or its tanh form.");
  m.def_kernel<rowwise_of<softmax, softmax>>("softmax(x, out=None)", "Softmax over the last axis.");
  m.def_kernel<rowwise_of<log_softmax, log_softmax>>(
      "log_softmax(x, out=None)", "Logarithm of the softmax over the last axis.");
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

void bind_map_kernels(Functions &m) {
  using namespace kernels;
  m.def_kernel<map<erf, erf>>("erf(x, out=None)", "The error function.");
  m.def_kernel<map<erfinv, erfinv>>("erfinv(x, out=None)", "The inverse of the error function.");
  m.def_kernel<map<lgamma, lgamma>>("lgamma(x, out=None)", "log(|gamma(x)|).");
  m.def_kernel<map<digamma, digamma>>("digamma(x, out=None)", "The derivative of lgamma.");
  m.def_kernel<map_pair<logaddexp, logaddexp>>("logaddexp(x, y)", "log(exp(x) + exp(y)).");
  m.def_kernel<map_pair<fmod, fmod>>("fmod(x, y)", "The remainder of x / y with the sign of x.");
  m.def_kernel<map_pair<remainder, remainder>>("remainder(x, y)",
                                               "The remainder of x / y with the sign of y.");
  m.def_kernel<map_with<clamp, clamp>>("clamp(x, a=0.0, b=0.0, out=None)", "x limited to [a, b].");
  m.def_kernel<map_with<hardswish, hardswish>>("hardswish(x, a=0.0, b=0.0, out=None)",
                                               "x * min(max(x + 3, 0), 6) / 6.");
  m.def_kernel<map_with<hardsigmoid, hardsigmoid>>("hardsigmoid(x, a=0.0, b=0.0, out=None)",
                                                   "min(max(x + 3, 0), 6) / 6.");
  m.def_kernel<map_with<softplus, softplus>>("softplus(x, a=0.0, b=0.0, out=None)",
                                             "log(1 + exp(a * x)) / a, and x where a * x > b.");
  m.def_kernel<map_with<threshold, threshold>>("threshold(x, a=0.0, b=0.0, out=None)",
                                               "x, and b where x <= a.");
  m.def_kernel<map_with<hardshrink, hardshrink>>("hardshrink(x, a=0.0, b=0.0, out=None)",
                                                 "x, and 0 where |x| <= a.");
  m.def_kernel<map_with<softshrink, softshrink>>("softshrink(x, a=0.0, b=0.0, out=None)",
                                                 "x moved by a towards 0.");
  m.def_kernel<map_with<leaky_relu, leaky_relu>>("leaky_relu(x, a=0.0, b=0.0, out=None)",
                                                 "x, and a * x where x <= 0.");
  m.def_kernel<map_with<sign, sign>>("sign(x, a=0.0, b=0.0, out=None)", "-1, 0 or 1; 0 for NaN.");
  m.def_kernel<map_pair_with<huber, huber>>(
      "huber(x, y, a=0.0, b=0.0)", "z * z / 2 for z = |x - y| < a, else a * (z - a / 2); over b.");
  m.def_kernel<map_pair_with<between, between>>("between(x, y, a=0.0, b=0.0)",
                                                "x where a < y < b, else 0.");
  m.def_kernel<map_pair_with<hardswish_backward, hardswish_backward>>(
      "hardswish_backward(x, y, a=0.0, b=0.0)", "x times the derivative of hardswish at y.");
  m.def_kernel<map_pair_with<hardsigmoid_backward, hardsigmoid_backward>>(
      "hardsigmoid_backward(x, y, a=0.0, b=0.0)",
      "x times the derivative of hardsigmoid, from its result y.");
  m.def_kernel<map_pair_with<softplus_backward, softplus_backward>>(
      "softplus_backward(x, y, a=0.0, b=0.0)", "x times the derivative of softplus at y.");
  m.def_kernel<map_pair_with<threshold_backward, threshold_backward>>(
      "threshold_backward(x, y, a=0.0, b=0.0)", "x, and 0 where y <= a.");
  m.def_kernel<map_pair_with<shrink_backward, shrink_backward>>(
      "shrink_backward(x, y, a=0.0, b=0.0)", "x, and 0 where |y| <= a.");
  m.def_kernel<map_pair_with<leaky_relu_backward, leaky_relu_backward>>(
      "leaky_relu_backward(x, y, a=0.0, b=0.0)", "x, and a * x where y <= 0.");
}

}  // namespace

void bind_kernels(Functions &functions) {
  const py::handle module = functions.module();
  const std::string name = std::string(PyModule_GetName(module.ptr())) + ".kernels";
  const auto kernels = py::reinterpret_borrow<py::object>(PyImport_AddModule(name.c_str()));
  if (!kernels ||
      PyModule_SetDocString(
          kernels.ptr(),
          "Numeric kernels on float32 and float64 arrays; out may be the input.\n\n"
          "Array arguments beside the first take its dtype and the shape that follows from it: "
          "TypeError\nand ValueError otherwise, IndexError for an index out of range. Arrays may "
          "have any layout; only\nthose that an optimizer's step changes in place must be "
          "contiguous.") < 0 ||
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
