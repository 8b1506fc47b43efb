// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/replaced_tensors.h"

#include <vector>

#include "module/attributes/registry_edit.h"
#include "module/walk/pointer_set.h"
#include "python/context_variable.h"
#include "python/owned.h"
#include "python/signals.h"

namespace modtree {

namespace {

// 1 if the entry is one of the buffers, -1 on error. A name may be in both registries.
int is_of_buffers(const LoadEntry &entry) {
  ModuleObject *module = as_module(entry.module);
  const int is_parameter = registry_contains(module, Slot::parameters, entry.name);
  if (is_parameter <= 0) {
    return is_parameter < 0 ? -1 : 1;
  }
  PyObject *buffers;
  Owned keep;
  const int found = registry(module, Slot::buffers, &buffers, &keep);
  const Owned held = borrow(buffers);
  const int is_buffer = found > 0 ? mapping_contains(held.ptr(), entry.name) : found;
  if (is_buffer <= 0) {
    return is_buffer;
  }
  const Owned buffer = steal(PyObject_GetItem(held.ptr(), entry.name));
  return buffer ? buffer.ptr() == entry.tensor : -1;
}

}  // namespace

Owned ReplacedTensors::find(PyObject *tensor, PyObject *source) const {
  const auto found = replaced_.find(tensor);
  return found != replaced_.end() && found->second.source.ptr() == source
             ? found->second.replacement
             : Owned();
}

void ReplacedTensors::note(PyObject *tensor, PyObject *source, PyObject *replacement) {
  Replaced now{borrow(tensor), borrow(source), borrow(replacement)};
  Replaced former;  // what is dropped is dropped at the end: that may run Python code
  std::swap(replaced_[tensor], now);
  if (now.replacement && now.replacement.ptr() != replacement) {
    // The values of another name count, as where tensors are written to one after the other.
    former = {now.replacement, borrow(source), borrow(replacement)};
    std::swap(replaced_[now.replacement.ptr()], former);
  }
}

// Borrowed; null for a tensor that nothing replaced.
PyObject *ReplacedTensors::last_replacement(PyObject *tensor) const {
  PyObject *last = nullptr;
  // No more steps than there are replacements, should they lead in a circle.
  for (std::size_t i = 0; i < replaced_.size(); ++i) {
    const auto found = replaced_.find(last ? last : tensor);
    if (found == replaced_.end() || found->second.replacement.is(found->second.tensor)) {
      break;
    }
    last = found->second.replacement.ptr();
  }
  return last;
}

int ReplacedTensors::settle_registry(PyObject *module, Slot slot) const {
  PyObject *mapping, *name, *tensor;
  Owned keep;
  const int found = registry(as_module(module), slot, &mapping, &keep);
  if (found <= 0) {
    return found;
  }
  RegistryItems items;
  if (items.start(mapping) < 0) {
    return -1;
  }
  int more;
  while ((more = items.next(&name, &tensor)) > 0) {
    const Owned last = borrow(last_replacement(tensor));
    const Owned held_name = last ? borrow(name) : Owned();
    if (last && store_registered(as_module(module), slot, held_name.ptr(), last.ptr()) < 0) {
      return -1;
    }
  }
  return more;
}

int ReplacedTensors::settle(PyObject *root) {
  if (replaced_.empty()) {
    return 0;
  }
  std::vector<Owned> pending{borrow(root)};
  std::vector<Owned> owned;  // addresses that were seen are not used again
  PointerSet seen;
  SignalCheck signals;
  while (!pending.empty()) {
    const Owned module = std::move(pending.back());
    pending.pop_back();
    if (!is_module(module.ptr()) || !seen.insert(module.ptr())) {
      continue;
    }
    owned.push_back(module);
    PyObject *children, *name, *child;
    Owned keep;
    RegistryItems items;
    if (signals.step() < 0 || settle_registry(module.ptr(), Slot::parameters) < 0 ||
        settle_registry(module.ptr(), Slot::buffers) < 0 ||
        registry(as_module(module.ptr()), Slot::modules, &children, &keep) < 0 ||
        items.start(children) < 0) {
      return -1;
    }
    int more;
    while ((more = items.next(&name, &child)) > 0) {
      pending.push_back(borrow(child));
    }
    if (more < 0) {
      return -1;
    }
  }
  return 0;
}

int replace_entry(const LoadEntry &entry, const LoadMode &mode, PyObject *source) {
  ReplacedTensors *active = AtWork<ReplacedTensors>::current();
  Owned value = active ? active->find(entry.tensor, source) : Owned();
  if (!value) {
    value = steal(entry.family->filled(entry.tensor, source, mode.assign));
    if (!value) {
      return -1;
    }
    active = AtWork<ReplacedTensors>::current();
    if (active) {
      active->note(entry.tensor, source, value.ptr());
    }
  }
  if (mode.assign) {
    return PyObject_SetAttr(entry.module, entry.name, value.ptr());
  }
  const int is_buffer = is_of_buffers(entry);
  return is_buffer < 0 ? -1
                       : store_registered(as_module(entry.module),
                                          is_buffer ? Slot::buffers : Slot::parameters, entry.name,
                                          value.ptr());
}

}  // namespace modtree
