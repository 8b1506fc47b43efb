// SPDX-License-Identifier: BSD-3-Clause
// Kernels that go element by element.
#include <cstddef>
#include <vector>

#include "bind/dense_arrays.h"
#include "kernels/pointwise.h"
#include "kernels/special.h"

namespace modtree {

namespace {

template <class T>
using Unary = void (*)(const T *, T *, std::ptrdiff_t);
template <class T>
using Binary = void (*)(const T *, const T *, T *, std::ptrdiff_t);
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

}  // namespace

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

}  // namespace modtree
