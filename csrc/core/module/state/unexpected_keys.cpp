// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/unexpected_keys.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "module/state/saved_names.h"
#include "module/state/state_path.h"
#include "python/owned.h"
#include "python/signals.h"

namespace modtree {

namespace {

Owned text(std::string_view name) {
  return steal(
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogatepass"));
}

// Reports the entries of the index at a module that neither it nor a child of it loads.
int judge(const KeyIndex &index, std::uint32_t number, SignalCheck *signals, LoadPlan *plan) {
  const LoadPlan::Visit &visit = plan->visits[number];
  const KeyIndex::Node &node = index.node(visit.node);
  ModuleObject *module = as_module(visit.module);
  std::vector<std::uint32_t> found;
  std::unordered_set<std::uint32_t> below_unknown;
  std::uint32_t extra_state = 0;
  bool has_extra_state = false;
  PyObject *children;
  Owned asked;
  if (registry(module, Slot::modules, &children, &asked) < 0) {
    return -1;
  }
  const Owned held_children = borrow(children);
  for (const KeyIndex::NodeId child : node.children) {
    const Owned name = text(index.node(child).name);
    const int known = name && signals->step() == 0 ? mapping_contains(children, name.ptr()) : -1;
    if (known < 0) {
      return -1;
    }
    if (!known) {
      const std::vector<std::uint32_t> below = index.positions(child);
      found.insert(found.end(), below.begin(), below.end());
      // The setter may make this child.
      below_unknown.insert(below.begin(), below.end());
    }
  }
  for (const KeyIndex::Leaf &leaf : node.leaves) {
    if (leaf.name == "_extra_state") {
      has_extra_state = !has_extra_state_setter(visit.module);
      extra_state = leaf.position;
      continue;
    }
    const Owned name = text(leaf.name);
    const int known = name && signals->step() == 0 ? has_entry(module, name.ptr()) : -1;
    if (known < 0) {
      return -1;
    }
    if (!known) {
      found.push_back(leaf.position);
    }
  }
  std::sort(found.begin(), found.end());
  if (has_extra_state) {
    found.insert(found.begin(), extra_state);
  }
  for (const std::uint32_t position : found) {
    Owned key = borrow(index.key(position));
    if (has_extra_state && position == extra_state && !PyUnicode_CheckExact(key.ptr())) {
      const Owned prefix = plan->prefix_of(number);
      key = prefix ? steal(extra_state_key(prefix.ptr())) : Owned();
      if (!key) {
        return -1;
      }
    }
    const bool provisional =
        visit.below_extra_state || (visit.has_extra_state && below_unknown.count(position));
    plan->unexpected.push_back(LoadPlan::Report{visit.step, number, std::move(key), provisional});
    plan->may_change = plan->may_change || provisional;
  }
  return 0;
}

}  // namespace

int locate_visits(LoadRegion &region, LoadPlan *plan) {
  if (!region.index) {
    region.index = std::make_shared<KeyIndex>();
    if (region.index->build(region.dict.ptr(), plan->prefix.ptr()) < 0) {
      return -1;
    }
    region.node = KeyIndex::kRoot;
  }
  SignalCheck signals;
  for (LoadPlan::Visit &visit : plan->visits) {
    if (signals.step() < 0) {
      return -1;
    }
    visit.node = region.node;
    if (visit.name) {
      const KeyIndex::NodeId parent = plan->visits[visit.parent].node;
      visit.node = parent == KeyIndex::kNone ? parent : region.index->descend(parent, visit.name);
      if (visit.node == KeyIndex::kNone && PyErr_Occurred()) {
        return -1;
      }
    }
  }
  plan->located = true;
  return 0;
}

int find_unexpected_keys(LoadRegion &region, LoadPlan *plan) {
  if (locate_visits(region, plan) < 0) {
    return -1;
  }
  SignalCheck signals;
  for (std::uint32_t i = 0; i < plan->visits.size(); ++i) {
    const LoadPlan::Visit &visit = plan->visits[i];
    if (signals.step() < 0 || (visit.judged && visit.node != KeyIndex::kNone &&
                               judge(*region.index, i, &signals, plan) < 0)) {
      return -1;
    }
  }
  return 0;
}

}  // namespace modtree
