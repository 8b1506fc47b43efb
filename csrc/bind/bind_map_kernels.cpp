// SPDX-License-Identifier: BSD-3-Clause
// Kernels that go element by element.
#include <cstddef>
#include <vector>

#include "bind/dense_arrays.h"
#include "kernels/pointwise.h"
#include "kernels/special.h"

namespace modtree {

bool is_dense(const py::array &x) {
  if (x.flags() & py::array::c_style) {
    return true;
  }
  std::vector<std::pair<py::ssize_t, py::ssize_t>> axes;  // stride, size
  for (py::ssize_t i = 0; i < x.ndim(); ++i) {
    if (x.shape(i) == 0) {
      return true;
    }
    if (x.shape(i) > 1) {
      axes.emplace_back(x.strides(i), x.shape(i));
    }
  }
  std::sort(axes.begin(), axes.end());
  py::ssize_t expected = x.itemsize();
  for (const auto &[stride, size] : axes) {
    if (stride != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

bool same_layout(const py::array &a, const py::array &b) {
  if ((a.flags() & b.flags()) & py::array::c_style) {
    return true;
  }
  for (py::ssize_t i = 0; i < a.ndim(); ++i) {
    if (a.shape(i) > 1 && a.strides(i) != b.strides(i)) {
      return false;
    }
  }
  return true;
}

py::array dense_copy(const py::array &x) {
  constexpr int kEnsureCopy = 0x20;
  PyObject *copy = py::detail::npy_api::get().PyArray_FromAny_(
      x.ptr(), nullptr, 0, 0, kEnsureCopy | py::detail::npy_api::NPY_ARRAY_ENSUREARRAY_ | kAligned,
      nullptr);
  if (copy == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::array>(copy);
}

void copy_into(const py::array &to, const py::array &from) {
  if (py::detail::npy_api::get().PyArray_CopyInto_(to.ptr(), from.ptr()) < 0) {
    throw py::error_already_set();
  }
}

namespace {

template <class T>
using Unary = void (*)(const T *, T *, std::ptrdiff_t);
template <class T>
using Pair = void (*)(const T *, const T *, T *, std::ptrdiff_t);
template <class T>
using Map = void (*)(const T *, T *, std::ptrdiff_t, T, T);
template <class T>
using PairMap = void (*)(const T *, const T *, T *, std::ptrdiff_t, T, T);

void def_unary(py::module_ &m, const char *name, const char *doc, Unary<float> f32,
               Unary<double> f64) {
  m.def(
      name,
      [=](const py::array &x) {
        return float_type(name, x) == Float::f32 ? map_dense<float>(x, f32)
                                                 : map_dense<double>(x, f64);
      },
      py::arg("x"), doc);
}

void def_pair(py::module_ &m, const char *name, const char *doc, Pair<float> f32,
              Pair<double> f64) {
  m.def(
      name,
      [=](const py::array &x, const py::array &y) {
        return float_type(name, x) == Float::f32 ? map_dense_pair<float>(name, x, y, f32)
                                                 : map_dense_pair<double>(name, x, y, f64);
      },
      py::arg("x"), py::arg("y"), doc);
}

template <class T>
py::array map_with(const py::array &x, double a, double b, Map<T> kernel) {
  return map_dense<T>(x, [=](const T *from, T *to, py::ssize_t n) {
    kernel(from, to, n, static_cast<T>(a), static_cast<T>(b));
  });
}

void def_map(py::module_ &m, const char *name, const char *doc, Map<float> f32, Map<double> f64) {
  m.def(
      name,
      [=](const py::array &x, double a, double b) {
        return float_type(name, x) == Float::f32 ? map_with<float>(x, a, b, f32)
                                                 : map_with<double>(x, a, b, f64);
      },
      py::arg("x"), py::arg("a") = 0.0, py::arg("b") = 0.0, doc);
}

template <class T>
py::array pair_with(const char *name, const py::array &x, const py::array &y, double a, double b,
                    PairMap<T> kernel) {
  return map_dense_pair<T>(name, x, y, [=](const T *p, const T *q, T *to, py::ssize_t n) {
    kernel(p, q, to, n, static_cast<T>(a), static_cast<T>(b));
  });
}

void def_pair_map(py::module_ &m, const char *name, const char *doc, PairMap<float> f32,
                  PairMap<double> f64) {
  m.def(
      name,
      [=](const py::array &x, const py::array &y, double a, double b) {
        return float_type(name, x) == Float::f32 ? pair_with<float>(name, x, y, a, b, f32)
                                                 : pair_with<double>(name, x, y, a, b, f64);
      },
      py::arg("x"), py::arg("y"), py::arg("a") = 0.0, py::arg("b") = 0.0, doc);
}

}  // namespace

void bind_map_kernels(py::module_ &m) {
  using namespace kernels;
  def_unary(m, "erf", "The error function.", erf, erf);
  def_unary(m, "erfc", "1 - erf(x).", erfc, erfc);
  def_unary(m, "erfinv", "The inverse of the error function.", erfinv, erfinv);
  def_unary(m, "digamma", "The derivative of lgamma.", digamma, digamma);
  def_pair(m, "logaddexp", "log(exp(x) + exp(y)).", logaddexp, logaddexp);
  def_pair(m, "fmod", "The remainder of x / y with the sign of x.", fmod, fmod);
  def_pair(m, "remainder", "The remainder of x / y with the sign of y.", remainder, remainder);
  def_map(m, "clamp", "x limited to [a, b].", clamp, clamp);
  def_map(m, "hardswish", "x * min(max(x + 3, 0), 6) / 6.", hardswish, hardswish);
  def_map(m, "hardsigmoid", "min(max(x + 3, 0), 6) / 6.", hardsigmoid, hardsigmoid);
  def_map(m, "softplus", "log(1 + exp(a * x)) / a, and x where a * x > b.", softplus, softplus);
  def_map(m, "threshold", "x, and b where x <= a.", threshold, threshold);
  def_map(m, "hardshrink", "x, and 0 where |x| <= a.", hardshrink, hardshrink);
  def_map(m, "softshrink", "x moved by a towards 0.", softshrink, softshrink);
  def_map(m, "leaky_relu", "x, and a * x where x <= 0.", leaky_relu, leaky_relu);
  def_map(m, "sign", "-1, 0 or 1; 0 for NaN.", sign, sign);
  def_pair_map(m, "huber", "z * z / 2 for z = |x - y| < a, else a * (z - a / 2); over b.", huber,
               huber);
  def_pair_map(m, "between", "x where a < y < b, else 0.", between, between);
  def_pair_map(m, "hardswish_backward", "x times the derivative of hardswish at y.",
               hardswish_backward, hardswish_backward);
  def_pair_map(m, "hardsigmoid_backward",
               "x times the derivative of hardsigmoid, from its result y.", hardsigmoid_backward,
               hardsigmoid_backward);
  def_pair_map(m, "softplus_backward", "x times the derivative of softplus at y.",
               softplus_backward, softplus_backward);
  def_pair_map(m, "threshold_backward", "x, and 0 where y <= a.", threshold_backward,
               threshold_backward);
  def_pair_map(m, "shrink_backward", "x, and 0 where |y| <= a.", shrink_backward, shrink_backward);
  def_pair_map(m, "leaky_relu_backward", "x, and a * x where y <= 0.", leaky_relu_backward,
               leaky_relu_backward);
}

}  // namespace modtree
