// SPDX-License-Identifier: BSD-3-Clause
#include "family/no_grad.h"

namespace modtree {

NoGradScopes::~NoGradScopes() {
  if (exit() < 0) {
    PyErr_WriteUnraisable(nullptr);
  }
}

int NoGradScopes::enter_slowly(TensorFamily *family) {
  for (const auto &scope : open_) {
    if (scope.first == family) {
      last_ = family;
      return 0;
    }
  }
  auto scope = py::reinterpret_steal<py::object>(family->enter_no_grad());
  if (!scope) {
    return -1;
  }
  open_.emplace_back(family, std::move(scope));
  last_ = family;
  return 0;
}

int NoGradScopes::exit() {
  if (open_.empty()) {
    return 0;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  int result = 0;
  last_ = nullptr;
  while (!open_.empty()) {
    const auto [family, scope] = std::move(open_.back());
    open_.pop_back();
    if (family->exit_no_grad(scope.ptr()) < 0) {
      result = -1;
      if (type || !open_.empty()) {
        PyErr_WriteUnraisable(scope.ptr());
      }
    }
  }
  if (type) {
    PyErr_Restore(type, value, traceback);
    return 0;
  }
  return result;
}

}  // namespace modtree
