// SPDX-License-Identifier: BSD-3-Clause
// Kernels that go along one axis: scans, selections, and elements picked by an index.
#include <algorithm>
#include <cstdint>
#include <string>

#include "bind/dense_arrays.h"
#include "kernels/along.h"
#include "kernels/scan.h"
#include "kernels/select.h"

namespace modtree {
namespace {

// An axis, counted from the start.
py::ssize_t checked_axis(const char *name, const Array &x, py::ssize_t axis) {
  if (axis < -x.ndim() || axis >= x.ndim()) {
    throw py::value_error(std::string(name) + ": no axis " + std::to_string(axis) +
                          " in an array of shape " + to_string(shape_of(x)));
  }
  return axis < 0 ? axis + x.ndim() : axis;
}

// The sizes before, of and behind an axis.
struct Split {
  Split(const Array &x, py::ssize_t axis) : n(x.shape(axis)) {
    for (py::ssize_t i = 0; i < x.ndim(); ++i) {
      (i < axis ? outer : inner) *= i == axis ? 1 : x.shape(i);
    }
  }

  py::ssize_t outer = 1, n, inner = 1;
};

Array scan(const Array &input, py::ssize_t axis, bool product, bool reverse) {
  const char *name = "scan";
  axis = checked_axis(name, input, axis);
  return with_float(name, input, [&](auto zero) -> Array {
    using T = decltype(zero);
    const Contiguous<T> x(input);
    ArrayOf<T> out(shape_of(input));
    const Split split(input, axis);
    run_unless_empty(x, kernels::scan,
                     kernels::Scan<T>{x.data(), out.mutable_data(), split.outer, split.n,
                                      split.inner, product, reverse});
    return std::move(out);
  });
}

constexpr py::ssize_t kLongest = py::ssize_t{1} << 32;

py::object top_indices(const Array &input, py::ssize_t k, py::ssize_t axis, bool largest) {
  const char *name = "top_indices";
  axis = checked_axis(name, input, axis);
  const Split split(input, axis);
  if (k < 0 || k > split.n || split.n >= kLongest) {
    throw py::index_error(std::string(name) + ": k = " + std::to_string(k) +
                          " is out of range for an axis of size " + std::to_string(split.n));
  }
  Shape shape = shape_of(input);
  shape[static_cast<std::size_t>(axis)] = k;
  const Result<std::int64_t> indices(shape);
  return with_float(name, input, [&](auto zero) -> py::object {
    using T = decltype(zero);
    const Contiguous<T> x(input);
    run_unless_empty(x, kernels::top_indices,
                     kernels::Select<T>{x.data(), indices.data(), split.outer, split.n, split.inner,
                                        k, largest});
    return indices.value();
  });
}

// --- by index

// The kernels read 8 bytes at once, also where they are two floats.
bool aligned_strides(const Array &x) {
  const py::ssize_t bytes = x.itemsize();
  const auto unit = static_cast<std::uintptr_t>(std::min<py::ssize_t>(bytes, 8));
  if (!x.is_aligned() || reinterpret_cast<std::uintptr_t>(x.data()) % unit != 0) {
    return false;
  }
  for (py::ssize_t i = 0; i < x.ndim(); ++i) {
    if (x.strides(i) % bytes != 0) {
      return false;
    }
  }
  return true;
}

// An array whose strides are whole elements: itself, or a copy.
Array with_element_strides(const Array &x) { return aligned_strides(x) ? x : dense_copy(x); }

// Geometry of `index` into an array of shape and strides of `x`; ValueError when they do not fit.
kernels::Along along(const char *name, const Array &x, const ArrayOf<std::int64_t> &index,
                     const Array &other, py::ssize_t axis) {
  if (index.ndim() != x.ndim() || index.ndim() != other.ndim() || index.ndim() < 1 ||
      index.ndim() > kernels::kMaxAxes) {
    throw py::value_error(std::string(name) + ": arrays of " + std::to_string(x.ndim()) + ", " +
                          std::to_string(index.ndim()) + " and " + std::to_string(other.ndim()) +
                          " axes do not go together");
  }
  kernels::Along a{};
  a.ndim = static_cast<int>(x.ndim());
  for (py::ssize_t i = 0; i < x.ndim(); ++i) {
    if (index.shape(i) > other.shape(i) || (i != axis && index.shape(i) > x.shape(i))) {
      throw py::value_error(std::string(name) + ": an index of shape " +
                            to_string(shape_of(index)) + " does not fit arrays of shapes " +
                            to_string(shape_of(x)) + " and " + to_string(shape_of(other)));
    }
    a.shape[i] = index.shape(i);
    a.index_strides[i] = index.strides(i) / index.itemsize();
    a.outer_strides[i] = i == axis ? 0 : x.strides(i) / x.itemsize();
    a.other_strides[i] = other.strides(i) / other.itemsize();
  }
  a.axis_stride = x.strides(axis) / x.itemsize();
  a.axis_size = x.shape(axis);
  a.index = index.data();
  return a;
}

// An index array as it is if its dtype is int64, converted otherwise.
ArrayOf<std::int64_t> index_array(const char *name, const py::object &value) {
  if (is_array_of<std::int64_t>(value.ptr())) {
    return py::reinterpret_borrow<ArrayOf<std::int64_t>>(
        with_element_strides(py::reinterpret_borrow<Array>(value)));
  }
  return integers(name, "index", value);
}

bool plain_elements(const Array &x) {
  const char kind = x.kind();
  const py::ssize_t bytes = x.itemsize();
  return std::string("?biufc").find(kind) != std::string::npos &&
         (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16);
}

void need_plain_elements(const char *name, const Array &x) {
  if (!plain_elements(x)) {
    throw py::type_error(std::string(name) + ": expected an array of numbers, got " +
                         x.dtype_name());
  }
}

// None when an index is out of range.
py::object gather(const Array &input, py::ssize_t axis, const py::object &given) {
  const char *name = "gather";
  need_plain_elements(name, input);
  axis = checked_axis(name, input, axis);
  const Array x = with_element_strides(input);
  const auto index = index_array(name, given);
  checked_product(shape_of(index));
  Array out = new_array_like(x, shape_of(index));
  const kernels::Along a = along(name, x, index, out, axis);
  const auto bytes = static_cast<std::size_t>(x.itemsize());
  const void *from = x.data();
  void *to = out.mutable_data();
  bool inside;
  {
    const GilRelease release;
    inside = kernels::gather(a, bytes, from, to);
  }
  return inside ? py::object(std::move(out)) : py::none();
}

kernels::ScatterMode scatter_mode(const std::string &mode) {
  if (mode == "assign") {
    return kernels::ScatterMode::assign;
  }
  if (mode == "add") {
    return kernels::ScatterMode::add;
  }
  if (mode == "multiply") {
    return kernels::ScatterMode::multiply;
  }
  if (mode == "amax") {
    return kernels::ScatterMode::largest;
  }
  if (mode == "amin") {
    return kernels::ScatterMode::smallest;
  }
  throw py::value_error("scatter: mode must be assign, add, multiply, amax or amin, got " + mode);
}

template <class T>
bool scatter_into(const kernels::Along &a, kernels::ScatterMode mode, const Array &source,
                  Array &out) {
  if (!is_array_of<T>(out.ptr())) {
    throw py::type_error("scatter: the bytes of the arrays are not in this machine's order");
  }
  const T *from = static_cast<const T *>(source.data());
  T *to = static_cast<T *>(out.mutable_data());
  const GilRelease release;
  return kernels::scatter(a, mode, from, to);
}

// A copy of x, in its order of axes, with what the index says (x itself, for a caller who says that
// it is `own`); None when an index is out of range.
py::object scatter(const Array &input, py::ssize_t axis, const py::object &given,
                   const Array &values, const std::string &mode_name, bool own) {
  const char *name = "scatter";
  need_plain_elements(name, input);
  axis = checked_axis(name, input, axis);
  if (!input.same_dtype(values)) {
    throw py::type_error(std::string(name) + ": source must be of " + input.dtype_name() +
                         " like the first array, got " + values.dtype_name());
  }
  const kernels::ScatterMode mode = scatter_mode(mode_name);
  const auto index = index_array(name, given);
  const Array source = with_element_strides(values);
  if (own && !(input.is_writeable() && aligned_strides(input))) {
    throw py::value_error(std::string(name) + ": the array to change is read-only or not aligned");
  }
  Array out = own ? input : dense_copy(input);
  const kernels::Along a = along(name, out, index, source, axis);
  bool inside;
  if (mode == kernels::ScatterMode::assign) {
    const auto bytes = static_cast<std::size_t>(out.itemsize());
    const void *from = source.data();
    void *to = out.mutable_data();
    const GilRelease release;
    inside = kernels::scatter_assign(a, bytes, from, to);
  } else {
    inside = float_type(name, input) == Float::f32 ? scatter_into<float>(a, mode, source, out)
                                                   : scatter_into<double>(a, mode, source, out);
  }
  return inside ? py::object(std::move(out)) : py::none();
}

}  // namespace

void bind_along_kernels(Functions &m) {
  m.def_kernel<scan>("scan(x, axis, product=False, reverse=False)",
                     "Running sums or products along an axis.");
  m.def_kernel<top_indices>(
      "top_indices(x, k, axis, largest)",
      "Where the k largest or smallest along an axis are, in order; NaN is the largest.");
  m.def_kernel<gather>(
      "gather(x, axis, index)",
      "The elements of x at the indices along an axis; None when one is out of range.");
  m.def_kernel<scatter>(
      "scatter(x, axis, index, source, mode, own=False)",
      "A copy of x (x itself with `own`) with the source assigned, added, ... where the index "
      "says; None when one is out of range.");
}

}  // namespace modtree
