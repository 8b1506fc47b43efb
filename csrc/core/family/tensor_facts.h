// SPDX-License-Identifier: BSD-3-Clause
// What is read of a tensor at once, by value: nothing here points into the tensor but `data`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "family/dlpack.h"

namespace modtree {

// unknown: no error; the tensor is to be asked by its Python names.
enum class Read : std::uint8_t { done, unknown, error };

struct TensorFacts {
  static constexpr int kMaxDims = 8;

  dlpack::DataType dtype;
  dlpack::Device device;
  int ndim = 0;
  std::int64_t shape[kMaxDims];
  std::int64_t strides[kMaxDims];  // in elements
  // Of the first element. What is there may change as soon as anything else runs.
  const std::byte *data = nullptr;

  bool has_shape_of(const TensorFacts &other) const {
    return ndim == other.ndim && std::equal(shape, shape + ndim, other.shape);
  }
};

}  // namespace modtree
