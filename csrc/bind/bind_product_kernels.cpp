// SPDX-License-Identifier: BSD-3-Clause
// Products of matrices.
#include "bind/dense_arrays.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/dot_products.h"
#include "kernels/matrix_product.h"

namespace modtree {

namespace {

// Multiplications of a product that NumPy's loop over small matrices does as fast.
constexpr double kTinyProduct = 1 << 10;

// Values of a row that are worth a product with one vector.
constexpr py::ssize_t kLongRow = 256;
// Values of the result from which on OpenBLAS's kernels for short rows are worth calling.
constexpr double kManyShort = 1 << 12;

bool has_wide_products() { return kernels::isa() != kernels::Isa::baseline; }

// True if a kernel can read the values where they are: all strides are whole values.
template <class T>
bool is_readable(const Array &x) {
  if (!readable_as<T>(x) || x.ndim() < 2) {
    return false;
  }
  const Shape strides = x.strides();
  return std::all_of(strides.begin(), strides.end(), [](py::ssize_t stride) {
    return stride % static_cast<py::ssize_t>(sizeof(T)) == 0;
  });
}

// In values, of an axis that is counted from the last one.
template <class T>
py::ssize_t stride_from_last(const Array &x, py::ssize_t axis) {
  return x.strides(x.ndim() - 1 - axis) / static_cast<py::ssize_t>(sizeof(T));
}

py::ssize_t size_from_last(const Array &x, py::ssize_t axis) {
  return axis < x.ndim() ? x.shape(x.ndim() - 1 - axis) : 1;
}

// The bytes from the first to behind the last value in memory.
struct Extent {
  explicit Extent(const Array &x) : first(reinterpret_cast<std::uintptr_t>(x.data())), last(first) {
    if (x.size() == 0) {
      return;
    }
    last += static_cast<std::uintptr_t>(x.itemsize());
    for (py::ssize_t axis = 0; axis < x.ndim(); ++axis) {
      const py::ssize_t reach = (x.shape(axis) - 1) * x.strides(axis);
      (reach < 0 ? first : last) += static_cast<std::uintptr_t>(reach);
    }
  }
  bool overlaps(const Extent &other) const { return first < other.last && other.first < last; }

  std::uintptr_t first, last;
};

template <class T, class Value>
kernels::StridedMatrix<Value> matrix(Value *values, const Array &x) {
  return {values, stride_from_last<T>(x, 1), stride_from_last<T>(x, 0)};
}

// Product `number` of those that the leading axes make, which are broadcast against each other.
template <class T>
kernels::ProductOffsets offsets_of(const Array &a, const Array &b, const Array &out,
                                   py::ssize_t number) {
  kernels::ProductOffsets at{};
  for (py::ssize_t axis = 2; axis < out.ndim(); ++axis) {
    const py::ssize_t size = size_from_last(out, axis), index = number % size;
    number /= size;
    at.out += index * stride_from_last<T>(out, axis);
    if (size_from_last(a, axis) > 1) {
      at.a += index * stride_from_last<T>(a, axis);
    }
    if (size_from_last(b, axis) > 1) {
      at.b += index * stride_from_last<T>(b, axis);
    }
  }
  return at;
}

// The shape of the product; empty where there is none.
Shape product_shape(const Array &a, const Array &b) {
  if (size_from_last(a, 0) != size_from_last(b, 1)) {
    return {};
  }
  const py::ssize_t ndim = std::max(a.ndim(), b.ndim());
  Shape shape(static_cast<std::size_t>(ndim));
  for (py::ssize_t axis = 2; axis < ndim; ++axis) {
    const py::ssize_t of_a = size_from_last(a, axis), of_b = size_from_last(b, axis);
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      return {};
    }
    shape[static_cast<std::size_t>(ndim - 1 - axis)] = of_a == 1 ? of_b : of_a;
  }
  shape[static_cast<std::size_t>(ndim - 2)] = size_from_last(a, 1);
  shape[static_cast<std::size_t>(ndim - 1)] = size_from_last(b, 0);
  return shape;
}

// True if the product can be written there.
template <class T>
bool is_writable(const py::object &out, const Shape &shape, const Array &a, const Array &b) {
  if (!is_array(out.ptr())) {
    return false;
  }
  const auto array = py::reinterpret_borrow<Array>(out);
  return is_readable<T>(array) && shape_of(array) == shape && array.is_writeable() &&
         (shape.back() == 1 || stride_from_last<T>(array, 0) == 1) &&
         !Extent(array).overlaps(Extent(a)) && !Extent(array).overlaps(Extent(b));
}

// True if the native kernel takes less time than NumPy's. It does not where sums of short rows, or
// the setup of many tiny products, take longer than the products themselves, nor where a matrix
// would be copied for one vector.
template <class T>
bool is_worth_it(const Array &a, const Array &b) {
  const py::ssize_t rows = size_from_last(a, 1), columns = size_from_last(b, 0);
  const py::ssize_t depth = size_from_last(a, 0), few = std::min(rows, columns);
  const double values = static_cast<double>(rows) * static_cast<double>(columns);
  if (few == 1) {
    return depth >= kLongRow &&
           (columns == 1 ? stride_from_last<T>(a, 0) : stride_from_last<T>(b, 1)) == 1;
  }
  if (few <= kernels::kMostVectors && !kernels::are_worth_dots(few, depth) && values > kManyShort) {
    return false;
  }
  return (a.ndim() == 2 && b.ndim() == 2) || values * static_cast<double>(depth) >= kTinyProduct;
}

template <class T>
py::object matmul_of(const Array &a, const Array &b, const py::object &bias,
                     const py::object &out) {
  const Shape shape = product_shape(a, b);
  if (shape.empty() || !is_readable<T>(a) || !is_readable<T>(b) || !is_worth_it<T>(a, b) ||
      (!out.is_none() && !is_writable<T>(out, shape, a, b))) {
    return py::none();
  }
  const Optional<T> added("matmul", "bias", bias, {shape.back()});
  const py::object result = out.is_none() ? py::object(Result<T>(shape).value()) : out;
  auto to = py::reinterpret_borrow<Array>(result);
  if (to.size() == 0) {
    return result;
  }
  kernels::MatrixProduct<T> p{
      matrix<T>(static_cast<const T *>(a.data()), a),
      matrix<T>(static_cast<const T *>(b.data()), b),
      added.data(),
      matrix<T>(static_cast<T *>(to.mutable_data()), to),
      size_from_last(a, 1),
      size_from_last(a, 0),
      shape.back(),
  };
  // What one row or value is apart from itself does not count, and may be anything.
  p.out.column = 1;
  if (p.depth == 1) {
    p.a.column = p.b.row = 1;
  }
  if (shape.size() == 2) {
    run(kernels::matrix_product, p);
    return result;
  }
  std::vector<kernels::ProductOffsets> offsets(
      static_cast<std::size_t>(to.size() / (p.rows * p.columns)));
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    offsets[i] = offsets_of<T>(a, b, to, static_cast<py::ssize_t>(i));
  }
  run(kernels::matrix_products,
      kernels::MatrixProducts<T>{p, offsets.data(), static_cast<py::ssize_t>(offsets.size())});
  return result;
}

py::object matmul(const py::object &first, const py::object &second, const py::object &bias,
                  const py::object &out) {
  if (!has_wide_products() || !is_array(first.ptr()) || !is_array(second.ptr())) {
    return py::none();
  }
  const auto a = py::reinterpret_borrow<Array>(first), b = py::reinterpret_borrow<Array>(second);
  if (a.type_number() != b.type_number() || a.ndim() < 2 || b.ndim() < 2) {
    return py::none();
  }
  if (a.type_number() == kTypeNumber<float>) {
    return matmul_of<float>(a, b, bias, out);
  }
  return a.type_number() == kTypeNumber<double> ? matmul_of<double>(a, b, bias, out) : py::none();
}

}  // namespace

void bind_product_kernels(Functions &m) {
  m.def_kernel<has_wide_products>(
      "has_wide_products()",
      "True if this machine has AVX2 or AVX-512, for which `convolution` and `matmul` are made.");
  m.def_kernel<matmul>(
      "matmul(a, b, bias=None, out=None)",
      "NumPy's matmul of float32 or float64 matrices, and bias[j] added to column j. None "
      "where NumPy is to be asked: other dtypes and layouts, fewer than two axes, "
      "short or tiny products, shapes that do not fit, instructions that this machine lacks.");
}

}  // namespace modtree
