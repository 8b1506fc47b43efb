// SPDX-License-Identifier: BSD-3-Clause
// Scopes in which the tensor libraries record nothing.
#pragma once

#include <utility>
#include <vector>

#include "family/family.h"

namespace modtree {

// Under a family's no_grad, entered when a tensor of the family is first touched. Left by exit(),
// before user code runs, or at the end.
class NoGradScopes {
public:
  NoGradScopes() = default;
  NoGradScopes(const NoGradScopes &) = delete;
  NoGradScopes &operator=(const NoGradScopes &) = delete;
  ~NoGradScopes();

  int enter(TensorFamily *family) { return family == last_ ? 0 : enter_slowly(family); }
  // Keeps an error that is set already. -1 on error.
  int exit();

private:
  int enter_slowly(TensorFamily *family);

  TensorFamily *last_ = nullptr;
  std::vector<std::pair<TensorFamily *, py::object>> open_;
};

}  // namespace modtree
