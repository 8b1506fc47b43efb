// SPDX-License-Identifier: BSD-3-Clause
// Arrays for kernels that go over memory and do not ask how it is arranged: an array whose elements
// fill one block is taken as it is, in whatever order of axes, and the result has the same order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "bind/kernel_arrays.h"

namespace modtree {

template <class T>
bool readable_as(const Array &x) {
  return is_array_of<T>(x.ptr()) && x.is_aligned();
}

// x as one block of memory of T.
template <class T>
ArrayOf<T> dense(const Array &x) {
  if (!readable_as<T>(x)) {
    return Contiguous<T>(x);
  }
  const bool block = x.is_c_contiguous() || is_dense(x);
  return py::reinterpret_borrow<ArrayOf<T>>(block ? x : dense_copy(x));
}

// New memory that is arranged like a block.
template <class T>
ArrayOf<T> empty_like(const Array &block) {
  if (block.size() == 0 || block.is_c_contiguous()) {
    return ArrayOf<T>(shape_of(block));
  }
  return ArrayOf<T>(shape_of(block), block.strides());
}

// x, of the shape of a block, arranged like it.
template <class T>
ArrayOf<T> arranged_like(const ArrayOf<T> &block, const Array &x) {
  if (readable_as<T>(x) && same_layout(block, x)) {
    return py::reinterpret_borrow<ArrayOf<T>>(x);
  }
  ArrayOf<T> copy = empty_like<T>(block);
  copy_into(copy, x);
  return copy;
}

// `kernel(x, out, n)` over all elements, without the GIL: into `out` where it is not None, which
// may be the input itself.
template <class T, class Kernel>
Array map_dense(const char *name, const Array &input, const py::object &out, Kernel kernel) {
  if (!out.is_none()) {
    return elementwise<T>(name, input, out, kernel);
  }
  const ArrayOf<T> x = dense<T>(input);
  ArrayOf<T> result = empty_like<T>(x);
  const T *from = x.data();
  T *to = result.mutable_data();
  const py::ssize_t n = x.size();
  {
    const GilRelease release;
    kernel(from, to, n);
  }
  return std::move(result);
}

// `kernel(x, y, out, n)` over all elements of two arrays of one shape and dtype.
template <class T, class Kernel>
Array map_dense_pair(const char *name, const Array &first, const Array &second, Kernel kernel) {
  if (second.type_number() != kTypeNumber<T>) {
    throw py::type_error(std::string(name) + ": expected two arrays of one dtype, got " +
                         first.dtype_name() + " and " + second.dtype_name());
  }
  if (shape_of(first) != shape_of(second)) {
    throw py::value_error(std::string(name) + ": expected two arrays of one shape, got " +
                          to_string(shape_of(first)) + " and " + to_string(shape_of(second)));
  }
  // An operand that is not a block (a broadcast one, a gradient that was expanded) follows the
  // other.
  const bool by_second = !is_dense(first) && is_dense(second);
  const ArrayOf<T> block = dense<T>(by_second ? second : first);
  const ArrayOf<T> other = arranged_like<T>(block, by_second ? first : second);
  ArrayOf<T> result = empty_like<T>(block);
  const T *x = by_second ? other.data() : block.data();
  const T *y = by_second ? block.data() : other.data();
  T *to = result.mutable_data();
  const py::ssize_t n = block.size();
  {
    const GilRelease release;
    kernel(x, y, to, n);
  }
  return std::move(result);
}

}  // namespace modtree
