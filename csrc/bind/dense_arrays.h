// SPDX-License-Identifier: BSD-3-Clause
// Arrays for kernels that go over memory and do not ask how it is arranged: an array whose elements
// fill one block is taken as it lies, in whatever order of axes, and the result lies alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "bind/kernel_arrays.h"

namespace modtree {

// Do the elements fill one block of memory, without gaps and repetitions?
bool is_dense(const py::array &x);

// The same places for the same indices?
bool same_layout(const py::array &a, const py::array &b);

// A copy in the order of memory of x: aligned, of x's dtype, and of no subclass, which could say
// otherwise (__array_finalize__).
py::array dense_copy(const py::array &x);

// Copies element by element, with conversion.
void copy_into(const py::array &to, const py::array &from);

template <class T>
bool readable_as(const py::array &x) {
  return py::isinstance<py::array_t<T>>(x) && (x.flags() & kAligned);
}

// x as one block of memory of T.
template <class T>
py::array_t<T> dense(const py::array &x) {
  if (!readable_as<T>(x)) {
    return Contiguous<T>(x);
  }
  const bool block = (x.flags() & py::array::c_style) || is_dense(x);
  return py::reinterpret_borrow<py::array_t<T>>(block ? x : dense_copy(x));
}

// New memory that is arranged like a block.
template <class T>
py::array_t<T> empty_like(const py::array &block) {
  if (block.size() == 0 || (block.flags() & py::array::c_style)) {
    return py::array_t<T>(shape_of(block));
  }
  return py::array_t<T>(shape_of(block), Shape(block.strides(), block.strides() + block.ndim()));
}

// x, of the shape of a block, arranged like it.
template <class T>
py::array_t<T> arranged_like(const py::array_t<T> &block, const py::array &x) {
  if (readable_as<T>(x) && same_layout(block, x)) {
    return py::reinterpret_borrow<py::array_t<T>>(x);
  }
  py::array_t<T> copy = empty_like<T>(block);
  copy_into(copy, x);
  return copy;
}

// `kernel(x, out, n)` over all elements, without the GIL.
template <class T, class Kernel>
py::array map_dense(const py::array &input, Kernel kernel) {
  const py::array_t<T> x = dense<T>(input);
  py::array_t<T> result = empty_like<T>(x);
  const T *from = x.data();
  T *to = result.mutable_data();
  const py::ssize_t n = x.size();
  {
    py::gil_scoped_release release;
    kernel(from, to, n);
  }
  return std::move(result);
}

// `kernel(x, y, out, n)` over all elements of two arrays of one shape and dtype.
template <class T, class Kernel>
py::array map_dense_pair(const char *name, const py::array &first, const py::array &second,
                         Kernel kernel) {
  if (second.dtype().num() != py::dtype::num_of<T>()) {
    throw py::type_error(std::string(name) + ": expected two arrays of one dtype, got " +
                         py::str(first.dtype()).template cast<std::string>() + " and " +
                         py::str(second.dtype()).template cast<std::string>());
  }
  if (shape_of(first) != shape_of(second)) {
    throw py::value_error(std::string(name) + ": expected two arrays of one shape, got " +
                          to_string(shape_of(first)) + " and " + to_string(shape_of(second)));
  }
  // What is no block (a broadcast operand, a gradient that was expanded) follows the other.
  const bool by_second = !is_dense(first) && is_dense(second);
  const py::array_t<T> block = dense<T>(by_second ? second : first);
  const py::array_t<T> other = arranged_like<T>(block, by_second ? first : second);
  py::array_t<T> result = empty_like<T>(block);
  const T *x = by_second ? other.data() : block.data();
  const T *y = by_second ? block.data() : other.data();
  T *to = result.mutable_data();
  const py::ssize_t n = block.size();
  {
    py::gil_scoped_release release;
    kernel(x, y, to, n);
  }
  return std::move(result);
}

}  // namespace modtree
