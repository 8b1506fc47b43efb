// SPDX-License-Identifier: BSD-3-Clause
// Whether a torch tensor has a gradient, by the functions of libtorch that its attribute `grad`
// calls, without what surrounds them.
#pragma once

#include <cstddef>

#include "python/prefetch.h"

namespace modtree {

class TensorGrads {
public:
  using Tensor = const void *const *;  // where the pointer to the implementation is

  // Looks for the functions in a library that is loaded. Where one is missing, nothing is known.
  void find(const char *library);

  bool is_trusted() const { return is_trusted_; }
  // Where that is so: true only for a leaf that certainly has none. For other tensors the attribute
  // warns. Runs no Python code.
  bool lacks_grad(Tensor tensor) const {
    return *tensor && *get_grad_(*tensor) == undefined_ && is_leaf_(tensor);
  }

  // Says what the attribute gave for a tensor: the functions are believed once they agreed with it
  // about one that has no gradient, and never again if they disagreed.
  void compare(Tensor tensor, bool gave_none);
  bool wants_comparison() const { return !is_trusted_ && undefined_; }

  // Asks for the memory in which that looks: the implementation, and when that has come, what it
  // has for autograd (`again`).
  void prefetch(Tensor tensor, bool again) const {
    if (!again) {
      prefetch_head(*tensor, kRead);
    } else if (is_trusted_ && *tensor && get_autograd_) {
      if (const void *autograd = get_autograd_(*tensor)) {
        prefetch_head(autograd, kRead);
      }
    }
  }

private:
  static constexpr std::size_t kRead = 56;  // bytes at the beginning of both

  // The gradient as a tensor of its own, which belongs to the tensor.
  Tensor (*get_grad_)(const void *implementation) = nullptr;
  bool (*is_leaf_)(Tensor) = nullptr;
  const void *(*get_autograd_)(const void *implementation) = nullptr;
  const void *undefined_ = nullptr;  // the implementation of an undefined tensor; null: not found
  bool is_trusted_ = false;
};

}  // namespace modtree
