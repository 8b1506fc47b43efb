// SPDX-License-Identifier: BSD-3-Clause
#include "family/tensor_sizes.h"

#include <algorithm>

#include "python/internals.h"
#include "python/loaded_library.h"
#include "python/prefetch.h"

namespace modtree {

bool TensorSizes::Sizes::equal(const Sizes &other) const {
  return ndim == other.ndim && std::equal(lengths, lengths + ndim, other.lengths);
}

void TensorSizes::find(const char *library) {
  if (!may_know_internals("tensor_sizes")) {
    return;
  }
  const auto look_for = [&](auto *function, const char *name) {
    *function =
        reinterpret_cast<std::decay_t<decltype(*function)>>(find_in_loaded_library(library, name));
    return *function != nullptr;
  };
  std::int32_t (*get_meta)() = nullptr;
  is_found_ = look_for(&get_ndim_, "aoti_torch_get_dim") &&
              look_for(&get_lengths_, "aoti_torch_get_sizes") &&
              look_for(&get_device_, "aoti_torch_get_device_type") &&
              look_for(&get_meta, "aoti_torch_device_type_meta");
  meta_ = is_found_ ? get_meta() : -1;
}

bool TensorSizes::compare(PyObject *tensor) {
  constexpr auto kEnd = static_cast<Py_ssize_t>(sizeof(PyObject) + sizeof(void *));
  const auto address = pybind11::reinterpret_steal<pybind11::object>(
      Py_TYPE(tensor)->tp_basicsize >= kEnd ? PyObject_GetAttrString(tensor, "_cdata") : nullptr);
  const void *told = address ? PyLong_AsVoidPtr(address.ptr()) : nullptr;
  PyErr_Clear();
  return told && *tensor_of(tensor) == told;
}

bool TensorSizes::knows_layout(PyObject *tensor) {
  if (!is_found_) {
    return false;
  }
  const PyTypeObject *type = Py_TYPE(tensor);
  if (type == known_[0] || type == known_[1]) {
    return true;
  }
  if (!compare(tensor)) {
    is_found_ = false;
    return false;
  }
  known_[known_[0] ? 1 : 0] = type;
  return true;
}

void TensorSizes::prefetch(PyObject *object) const {
  if (!has_known_layout(object)) {
    return;
  }
  // Copies read only its first three cache lines.
  const auto *implementation = static_cast<const char *>(*tensor_of(object));
  for (int line = 0; line < 3; ++line) {
    modtree::prefetch(implementation + 64 * line);
  }
}

bool TensorSizes::read(PyObject *tensor, Sizes *sizes) {
  Tensor found = tensor_of(tensor);
  if (!is_found_ || !*found) {
    return false;
  }
  is_found_ = get_ndim_(found, &sizes->ndim) == 0 && get_lengths_(found, &sizes->lengths) == 0 &&
              get_device_(found, &sizes->device) == 0;
  return is_found_;
}

}  // namespace modtree
