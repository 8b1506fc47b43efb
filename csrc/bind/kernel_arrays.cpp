// SPDX-License-Identifier: BSD-3-Clause
#include "bind/kernel_arrays.h"

#include <algorithm>
#include <limits>

namespace modtree {

Float float_type(const char *kernel, const Array &x) {
  const int number = x.type_number();
  if (number == kTypeNumber<float>) {
    return Float::f32;
  }
  if (number == kTypeNumber<double>) {
    return Float::f64;
  }
  throw py::type_error(std::string(kernel) + ": expected an array of float32 or float64, got " +
                       x.dtype_name());
}

std::string to_string(const Shape &shape) {
  std::string text = "(";
  for (py::ssize_t size : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

py::ssize_t checked_product(const Shape &sizes) {
  constexpr py::ssize_t kMost =
      std::numeric_limits<py::ssize_t>::max() / 16;  // in bytes, of doubles, with room to spare
  py::ssize_t product = 1;
  bool empty = false;
  for (const py::ssize_t size : sizes) {
    if (size < 0 || (size != 0 && product > kMost / size)) {
      throw py::value_error("an array of shape " + to_string(sizes) + " is not possible");
    }
    empty = empty || size == 0;
    product *= size == 0 ? 1 : size;
  }
  return empty ? 0 : product;
}

void check_overlap(const char *kernel, const char *name, const void *read, py::ssize_t read_bytes,
                   const void *out, py::ssize_t out_bytes, bool may_be_same) {
  const auto a = reinterpret_cast<std::uintptr_t>(read), b = reinterpret_cast<std::uintptr_t>(out);
  const bool apart = a + static_cast<std::uintptr_t>(read_bytes) <= b ||
                     b + static_cast<std::uintptr_t>(out_bytes) <= a;
  if (read_bytes != 0 && out_bytes != 0 && !apart && !(may_be_same && a == b)) {
    throw py::value_error(std::string(kernel) + ": out must not share memory with " + name +
                          (may_be_same ? ", unless it is the same array" : ""));
  }
}

Contiguous<std::int64_t> integers(const char *kernel, const char *name, const py::object &value) {
  const bool array = is_array(value.ptr());
  const char kind = array ? py::reinterpret_borrow<Array>(value).kind() : 'O';
  if (kind != 'i' && kind != 'u') {
    throw py::type_error(std::string(kernel) + ": " + name + " must be an array of integers, got " +
                         (array ? py::reinterpret_borrow<Array>(value).dtype_name()
                                : Py_TYPE(value.ptr())->tp_name));
  }
  return Contiguous<std::int64_t>(value);
}

Contiguous<std::int64_t> own_integers(const char *kernel, const char *name,
                                      const py::object &value) {
  const auto given = integers(kernel, name, value);
  ArrayOf<std::int64_t> copy(shape_of(given));
  std::copy_n(given.data(), copy.size(), copy.mutable_data());
  return Contiguous<std::int64_t>(copy);
}

void need_inside(const kernels::Inside &inside, const Contiguous<std::int64_t> &indices,
                 py::ssize_t limit, std::optional<std::int64_t> allowed, const char *before,
                 const char *after) {
  if (inside) {
    return;
  }
  const std::int64_t *data = indices.data();
  for (py::ssize_t i = 0; i < indices.size(); ++i) {
    if ((data[i] < 0 || data[i] >= limit) && data[i] != allowed) {
      throw py::index_error(before + std::to_string(data[i]) + after + std::to_string(limit));
    }
  }
  throw py::index_error("an index was out of range, and was changed by another thread since");
}

}  // namespace modtree
