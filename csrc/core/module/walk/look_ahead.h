// SPDX-License-Identifier: BSD-3-Clause
// Prefetching for operations that look at the parameters of one module after the other.
#pragma once

#include "family/family.h"
#include "module/object.h"
#include "python/prefetch.h"

namespace modtree {

// What an operation will read of the parameters.
enum class ReadsOf : std::uint8_t { gradient, shape };

// For the children of one parent. Each thing is asked for some children after what leads to it: the
// modules, their registries, the entries of these, the tensors, and where a library has what is
// read of them. Small trees fit into the cache, so nothing is done for the first modules of an
// operation.
template <ReadsOf reads>
class LookAhead {
public:
  // `ahead(places)`: the child that many places after the current one, or null. `type`: that of the
  // current one, which is a module. `family`: of the last tensor, or null. Runs no user code.
  template <class Ahead>
  void from(Ahead ahead, PyTypeObject *type, TensorFamily *family) {
    if (++count_ < kSmallTree) {
      return;
    }
    if (PyObject *far = ahead(12)) {
      prefetch_head(far, sizeof(ModuleObject));
    }
    if (PyObject *registry = parameters(ahead(9), type)) {
      prefetch(registry);
    }
    if (PyObject *registry = parameters(ahead(7), type)) {
      prefetch_entries(registry);
    }
    for_values(parameters(ahead(5), type), [](PyObject *value) { prefetch_head(value, kRead); });
    if (family) {
      for_values(parameters(ahead(3), type),
                 [&](PyObject *value) { ask_for(family, value, false); });
      if (reads == ReadsOf::gradient) {
        for_values(parameters(ahead(1), type),
                   [&](PyObject *value) { ask_for(family, value, true); });
      }
    }
  }

private:
  static constexpr std::size_t kSmallTree = 1000;
  static constexpr int kMostValues = 4;
  static constexpr std::size_t kRead = 32;  // bytes of a tensor

  static void ask_for(TensorFamily *family, PyObject *value, bool again) {
    if (reads == ReadsOf::gradient) {
      family->prefetch_grad(value, again);
    } else {
      family->prefetch(value);
    }
  }

  static PyObject *parameters(PyObject *child, PyTypeObject *type) {
    PyObject *registry =
        child && Py_TYPE(child) == type ? as_module(child)->state.parameters : nullptr;
    return registry && PyDict_CheckExact(registry) ? registry : nullptr;
  }

  template <class Function>
  static void for_values(PyObject *registry, Function function) {
    for (int i = 0; registry && i < kMostValues; ++i) {
      if (PyObject *value = dict_value_ahead(registry, 0, i)) {
        function(value);
      }
    }
  }

  std::size_t count_ = 0;
};

}  // namespace modtree
