// SPDX-License-Identifier: BSD-3-Clause
#include "bind/bind_kernels.h"

#include <pybind11/numpy.h>

#include <string>
#include <vector>

#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/softmax.h"

namespace py = pybind11;

namespace modtree {
namespace {

constexpr int kAligned = py::detail::npy_api::NPY_ARRAY_ALIGNED_;

template <class T>
using Contiguous = py::array_t<T, py::array::c_style | py::array::forcecast | kAligned>;

enum class Float { f32, f64 };

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

std::vector<py::ssize_t> shape_of(const py::array &x) { return {x.shape(), x.shape() + x.ndim()}; }

// `out` when given (then it has to fit exactly), a new array otherwise. The dtype is T's.
template <class T>
py::array_t<T> output(const char *kernel, const py::array &x, const py::object &out) {
  if (out.is_none()) {
    return py::array_t<T>(shape_of(x));
  }
  if (!py::isinstance<py::array_t<T, py::array::c_style>>(out)) {
    throw py::value_error(std::string(kernel) + ": out must be a C-contiguous array of the input's dtype");
  }
  auto array = py::reinterpret_borrow<py::array_t<T>>(out);
  if (shape_of(array) != shape_of(x)) {
    throw py::value_error(std::string(kernel) + ": out must have the input's shape");
  }
  if (!array.writeable() || !(array.flags() & kAligned)) {
    throw py::value_error(std::string(kernel) + ": out is read-only or not aligned");
  }
  return array;
}

// Runs `kernel(x, out, size)` without the GIL.
template <class T, class Kernel>
py::array elementwise(const char *name, const py::array &input, const py::object &out, Kernel kernel) {
  const Contiguous<T> x(input);
  py::array_t<T> result = output<T>(name, x, out);
  const T *from = x.data();
  T *to = result.mutable_data();
  const py::ssize_t n = x.size();
  {
    py::gil_scoped_release release;
    kernel(from, to, n);
  }
  return result;
}

// Runs `kernel(x, out, rows, n)` without the GIL, over the rows of the last axis; a 0-d array is one row of one value.
template <class T, class Kernel>
py::array rowwise(const char *name, const py::array &input, const py::object &out, Kernel kernel) {
  const py::ssize_t n = input.ndim() == 0 ? 1 : input.shape(input.ndim() - 1);
  const py::ssize_t rows = n == 0 ? 0 : input.size() / n;
  return elementwise<T>(name, input, out, [=](const T *x, T *to, py::ssize_t) { kernel(x, to, rows, n); });
}

py::array gelu(const py::array &x, bool tanh, const py::object &out) {
  if (float_type("gelu", x) == Float::f32) {
    return elementwise<float>("gelu", x, out, tanh ? kernels::gelu_tanh_f32 : kernels::gelu_f32);
  }
  return elementwise<double>("gelu", x, out, tanh ? kernels::gelu_tanh_f64 : kernels::gelu_f64);
}

py::array softmax(const py::array &x, const py::object &out) {
  if (float_type("softmax", x) == Float::f32) {
    return rowwise<float>("softmax", x, out, kernels::softmax_f32);
  }
  return rowwise<double>("softmax", x, out, kernels::softmax_f64);
}

py::array log_softmax(const py::array &x, const py::object &out) {
  if (float_type("log_softmax", x) == Float::f32) {
    return rowwise<float>("log_softmax", x, out, kernels::log_softmax_f32);
  }
  return rowwise<double>("log_softmax", x, out, kernels::log_softmax_f64);
}

// The n values of an optional argument; empty when it is None.
template <class T>
Contiguous<T> optional_vector(const char *argument, const py::object &value, py::ssize_t n) {
  if (value.is_none()) {
    return Contiguous<T>(0);
  }
  Contiguous<T> array(value);
  if (array.size() != n) {
    throw py::value_error(std::string("layer_norm: ") + argument + " has " + std::to_string(array.size()) +
                          " values, the normalized axes have " + std::to_string(n));
  }
  return array;
}

template <class T, class Kernel>
py::array layer_norm_as(const py::array &x, py::ssize_t n, const py::object &weight, const py::object &bias,
                        double eps, const py::object &out, Kernel kernel) {
  const auto w = optional_vector<T>("weight", weight, n);
  const auto b = optional_vector<T>("bias", bias, n);
  const T *w_data = weight.is_none() ? nullptr : w.data();
  const T *b_data = bias.is_none() ? nullptr : b.data();
  const py::ssize_t rows = n == 0 ? 0 : x.size() / n;
  return elementwise<T>("layer_norm", x, out, [=](const T *from, T *to, py::ssize_t) {
    kernel(from, w_data, b_data, to, rows, n, eps);
  });
}

py::array layer_norm(const py::array &x, int axes, const py::object &weight, const py::object &bias, double eps,
                     const py::object &out) {
  if (axes < 1 || axes > x.ndim()) {
    throw py::value_error("layer_norm: cannot normalize the last " + std::to_string(axes) + " axes of an array with " +
                          std::to_string(x.ndim()));
  }
  py::ssize_t n = 1;
  for (py::ssize_t axis = x.ndim() - axes; axis < x.ndim(); ++axis) {
    n *= x.shape(axis);
  }
  if (float_type("layer_norm", x) == Float::f32) {
    return layer_norm_as<float>(x, n, weight, bias, eps, out, kernels::layer_norm_f32);
  }
  return layer_norm_as<double>(x, n, weight, bias, eps, out, kernels::layer_norm_f64);
}

}  // namespace

void bind_kernels(py::module_ &m) {
  auto kernels = m.def_submodule("kernels", "Numeric kernels on float32 and float64 arrays; out may be the input.");
  kernels.def("gelu", &gelu, py::arg("x"), py::arg("tanh") = false, py::arg("out") = py::none(),
              "x * Phi(x), or its tanh form.");
  kernels.def("softmax", &softmax, py::arg("x"), py::arg("out") = py::none(), "Softmax over the last axis.");
  kernels.def("log_softmax", &log_softmax, py::arg("x"), py::arg("out") = py::none(),
              "Logarithm of the softmax over the last axis.");
  kernels.def("layer_norm", &layer_norm, py::arg("x"), py::arg("axes") = 1, py::arg("weight") = py::none(),
              py::arg("bias") = py::none(), py::arg("eps") = 1e-5, py::arg("out") = py::none(),
              "Normalizes over the last `axes` axes, then scales by weight and adds bias.");
}

}  // namespace modtree
