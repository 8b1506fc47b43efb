// SPDX-License-Identifier: BSD-3-Clause
#include "family/tensor_grads.h"

#include <type_traits>

#include "python/internals.h"
#include "python/loaded_library.h"

namespace modtree {

void TensorGrads::find(const char *library) {
  if (!may_know_internals("tensor_grads")) {
    return;
  }
  const auto look_for = [&](auto *function, const char *name) {
    *function =
        reinterpret_cast<std::decay_t<decltype(*function)>>(find_in_loaded_library(library, name));
    return *function != nullptr;
  };
  if (look_for(&get_grad_, "_ZNK3c1010TensorImpl4gradEv") &&
      look_for(&is_leaf_, "_ZNK2at10TensorBase7is_leafEv")) {
    look_for(&get_autograd_, "_ZNK3c1010TensorImpl13autograd_metaEv");
    undefined_ = find_in_loaded_library(library, "_ZN3c1019UndefinedTensorImpl10_singletonE");
  }
}

void TensorGrads::compare(Tensor tensor, bool gave_none) {
  if (!lacks_grad(tensor)) {
    return;
  }
  is_trusted_ = gave_none;
  if (!gave_none) {
    undefined_ = nullptr;
  }
}

}  // namespace modtree
