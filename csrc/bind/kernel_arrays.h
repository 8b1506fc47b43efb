// SPDX-License-Identifier: BSD-3-Clause
// Arrays on their way into and out of the kernels: dtype, shape and layout are checked here, before
// native code reads memory.
#pragma once

#include "bind/array.h"
#include "bind/functions.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/index.h"

namespace modtree {

enum class Float { f32, f64 };

Float float_type(const char *kernel, const Array &x);

inline Shape shape_of(const Array &x) { return x.shape(); }

// "(2, 3)"
std::string to_string(const Shape &shape);

// The product of the sizes; ValueError when it is more than memory can hold, negative sizes too. A
// size of 0 does not hide the others: the product of any of them is safe afterwards.
py::ssize_t checked_product(const Shape &sizes);

// ValueError when memory that is written is also read: `out` may be the input itself where the
// kernel goes value by value, but not a part of it that begins elsewhere.
void check_overlap(const char *kernel, const char *name, const void *read, py::ssize_t read_bytes,
                   const void *out, py::ssize_t out_bytes, bool may_be_same = true);

// Calls f(float()) or f(double()) by the dtype of x; TypeError for any other.
template <class F>
auto with_float(const char *kernel, const Array &x, F f) {
  return float_type(kernel, x) == Float::f32 ? f(float()) : f(double());
}

// `value` as contiguous memory; it must have T's dtype and exactly this shape.
template <class T>
Contiguous<T> argument(const char *kernel, const char *name, const py::object &value,
                       const Shape &shape) {
  if (!is_array(value.ptr())) {
    throw py::type_error(std::string(kernel) + ": " + name + " must be an array, got " +
                         Py_TYPE(value.ptr())->tp_name);
  }
  const auto array = py::reinterpret_borrow<Array>(value);
  if (array.type_number() != kTypeNumber<T>) {
    throw py::type_error(std::string(kernel) + ": " + name + " must be of " +
                         dtype_name(kTypeNumber<T>) + " like the first array, got " +
                         array.dtype_name());
  }
  if (shape_of(array) != shape) {
    throw py::value_error(std::string(kernel) + ": " + name + " must have shape " +
                          to_string(shape) + ", got " + to_string(shape_of(array)));
  }
  return Contiguous<T>(array);
}

// The same for an argument that may be None: then `data()` is null.
template <class T>
class Optional {
public:
  Optional(const char *kernel, const char *name, const py::object &value, const Shape &shape) {
    if (!value.is_none()) {
      array_ = argument<T>(kernel, name, value, shape);
      data_ = array_.data();
    }
  }

  const T *data() const { return data_; }

private:
  Contiguous<T> array_;
  const T *data_ = nullptr;
};

// A new array, or None (and a null pointer) when it is not wanted.
template <class T>
class Result {
public:
  explicit Result(const Shape &shape, bool wanted = true) : value_(py::none()) {
    if (wanted) {
      checked_product(shape);
      ArrayOf<T> array(shape);
      data_ = array.mutable_data();
      value_ = std::move(array);
    }
  }

  T *data() const { return data_; }
  const py::object &value() const { return value_; }
  py::ssize_t bytes() const { return data_ ? py::reinterpret_borrow<Array>(value_).nbytes() : 0; }

  // Takes the caller's array instead, where it gave one: it must fit exactly.
  static Result into(const char *kernel, const py::object &out, const Shape &shape);

private:
  py::object value_;
  T *data_ = nullptr;
};

// `out` when given (then it has to fit exactly), a new array otherwise. The dtype is T's.
template <class T>
ArrayOf<T> output(const char *kernel, const Array &x, const py::object &out) {
  if (out.is_none()) {
    return ArrayOf<T>(shape_of(x));
  }
  if (!is_array_of<T>(out.ptr()) || !py::reinterpret_borrow<Array>(out).is_c_contiguous()) {
    throw py::value_error(std::string(kernel) +
                          ": out must be a C-contiguous array of the input's dtype");
  }
  auto array = py::reinterpret_borrow<ArrayOf<T>>(out);
  if (shape_of(array) != shape_of(x)) {
    throw py::value_error(std::string(kernel) + ": out must have the input's shape");
  }
  if (!array.is_writeable() || !array.is_aligned()) {
    throw py::value_error(std::string(kernel) + ": out is read-only or not aligned");
  }
  return array;
}

// Runs `kernel(x, out, size)` without the GIL. `check(out)` may refuse the memory of the result
// before.
template <class T, class Kernel, class Check>
Array elementwise(const char *name, const Array &input, const py::object &out, Kernel kernel,
                  Check check) {
  const Contiguous<T> x(input);
  ArrayOf<T> result = output<T>(name, x, out);
  const T *from = x.data();
  T *to = result.mutable_data();
  const py::ssize_t n = x.size();
  check_overlap(name, "the input", from, x.nbytes(), to, result.nbytes());
  check(to);
  {
    const GilRelease release;
    kernel(from, to, n);
  }
  return result;
}

template <class T, class Kernel>
Array elementwise(const char *name, const Array &input, const py::object &out, Kernel kernel) {
  return elementwise<T>(name, input, out, kernel, [](const T *) {});
}

// An array to change in place: exactly T's dtype and `size` values, contiguous, aligned, writeable;
// TypeError or ValueError otherwise.
template <class T>
T *in_place(const char *kernel, const char *name, const py::object &value, py::ssize_t size) {
  const std::string what = std::string(kernel) + ": " + name;
  if (!is_array_of<T>(value.ptr())) {
    throw py::type_error(what + " must be an array of " + dtype_name(kTypeNumber<T>));
  }
  auto array = py::reinterpret_borrow<Array>(value);
  if (!array.is_c_contiguous() || !array.is_aligned() || !array.is_writeable()) {
    throw py::value_error(what + " must be C-contiguous, aligned and writeable");
  }
  if (array.size() != size) {
    throw py::value_error(what + " must have " + std::to_string(size) + " values, got " +
                          std::to_string(array.size()));
  }
  return static_cast<T *>(array.mutable_data());
}

template <class T>
Result<T> Result<T>::into(const char *kernel, const py::object &out, const Shape &shape) {
  if (out.is_none()) {
    return Result(shape);
  }
  Result result(shape, false);
  result.data_ = in_place<T>(kernel, "out", out, checked_product(shape));
  result.value_ = out;
  const Shape got = shape_of(py::reinterpret_borrow<Array>(out));
  if (got != shape) {
    throw py::value_error(std::string(kernel) + ": out must have shape " + to_string(shape) +
                          ", got " + to_string(got));
  }
  return result;
}

template <class T>
T *optional_in_place(const char *kernel, const char *name, const py::object &value,
                     py::ssize_t size) {
  return value.is_none() ? nullptr : in_place<T>(kernel, name, value, size);
}

// An integer array as contiguous int64; TypeError for other dtypes.
Contiguous<std::int64_t> integers(const char *kernel, const char *name, const py::object &value);

// The same as a copy: nobody else changes what was checked.
Contiguous<std::int64_t> own_integers(const char *kernel, const char *name,
                                      const py::object &value);

// The IndexError of a kernel that met an index which is neither in [0, limit) nor the one that is
// allowed. Checked by the kernel: other threads may write the indices while it works.
void need_inside(const kernels::Inside &inside, const Contiguous<std::int64_t> &indices,
                 py::ssize_t limit, std::optional<std::int64_t> allowed, const char *before,
                 const char *after);

// Runs `kernel(a)` without the GIL.
template <class Arguments>
void run(void (*kernel)(const Arguments &), const Arguments &a) {
  const GilRelease release;
  kernel(a);
}

// The same where there is something to do: an array of no values may have any number of rows.
template <class Arguments>
void run_unless_empty(const Array &x, void (*kernel)(const Arguments &), const Arguments &a) {
  if (x.size() != 0) {
    run(kernel, a);
  }
}

// The parts of the binding, one for each other file bind_*_kernels.cpp.
void bind_norm_kernels(Functions &m);
void bind_loss_kernels(Functions &m);
void bind_window_kernels(Functions &m);
void bind_optimizer_kernels(Functions &m);
void bind_recurrent_kernels(Functions &m);
void bind_product_kernels(Functions &m);
void bind_along_kernels(Functions &m);
void bind_sample_kernels(Functions &m);

}  // namespace modtree
