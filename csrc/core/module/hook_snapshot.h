// SPDX-License-Identifier: BSD-3-Clause
// The hooks of one phase of a call, as they were when it began (BEHAVIOUR 6.6, 6.9).
#pragma once

#include <vector>

#include "module/object.h"

namespace modtree {

// Removing the hook or its flags later changes nothing in this call.
struct Hook {
  py::object id;
  py::object function;
  bool with_kwargs = false;
  bool always_call = false;
  bool is_global = false;
};

// In the order in which they run. Most modules that have hooks have one: the first needs no memory
// of its own.
class HookSnapshot {
public:
  void add(Hook &&hook) {
    if (size_++ == 0) {
      first_ = std::move(hook);
    } else {
      rest_.push_back(std::move(hook));
    }
  }
  std::size_t size() const { return size_; }
  const Hook &operator[](std::size_t i) const { return i == 0 ? first_ : rest_[i - 1]; }

private:
  Hook first_;
  std::vector<Hook> rest_;
  std::size_t size_ = 0;
};

// Fills an empty snapshot: the global hooks, then the module's own. -1 on error.
int collect_pre_hooks(ModuleObject *module, HookSnapshot &hooks);
int collect_forward_hooks(ModuleObject *module, HookSnapshot &hooks);

}  // namespace modtree
