// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/running_plan.h"

#include <algorithm>
#include <utility>

#include "module/name_cache.h"
#include "module/state/saved_names.h"
#include "module/state/unexpected_keys.h"
#include "python/owned.h"

namespace modtree {

namespace {

using Kind = LoadPlan::Kind;
using Reports = std::vector<LoadPlan::Report>;

// Appends reports to a list as long as `is_due`; -1 on error.
template <class IsDue>
int append_reports(const Reports &reports, std::size_t *done, PyObject *list, IsDue is_due) {
  while (*done < reports.size() && is_due(reports[*done])) {
    if (PyList_Append(list, reports[(*done)++].text.ptr()) < 0) {
      return -1;
    }
  }
  return 0;
}

void skip_until_visit(const Reports &reports, std::size_t *done, std::uint32_t visit) {
  while (*done < reports.size() && reports[*done].visit < visit) {
    ++*done;
  }
}

// True if the next report is about this visit: reports are in the order of visits.
bool is_about(const Reports &reports, std::size_t done, std::uint32_t visit) {
  return done < reports.size() && reports[done].visit == visit;
}

// Compares the entries of one module with what a plan has of them, in the same order: steps, and
// reports of those that are missing in the checkpoint.
class EntryMatch {
public:
  // `prefix` is that of the module; it may be empty where nothing is missing.
  EntryMatch(const LoadPlan &plan, std::uint32_t visit, std::size_t missing, Owned prefix)
      : plan_(plan),
        visit_(visit),
        step_(plan.visits[visit].step),
        missing_(missing),
        prefix_(std::move(prefix)) {}

  int see(PyObject *name, PyObject *tensor) {
    if (is_next(Kind::entry)) {
      const LoadPlan::Step &step = plan_.steps[step_];
      const bool same_name =
          step.name == name || (PyUnicode_Check(name) && PyUnicode_Compare(step.name, name) == 0);
      if (same_name && step.tensor == tensor) {
        ++step_;
        return 0;
      }
    }
    return see_missing(name);
  }

  int see_extra_state() {
    if (is_next(Kind::extra_state)) {
      ++step_;
      return 0;
    }
    return see_missing(names.extra_state);
  }

  // True if the plan has all that was seen, and nothing else.
  bool is_complete() const {
    return as_planned_ && !is_next(Kind::entry) && !is_next(Kind::extra_state) && !misses_more();
  }

private:
  bool is_next(Kind kind) const {
    return step_ < plan_.steps.size() && plan_.steps[step_].visit == visit_ &&
           plan_.steps[step_].kind == kind;
  }

  bool misses_more() const { return is_about(plan_.missing, missing_, visit_); }

  int see_missing(PyObject *name) {
    if (!as_planned_ || !misses_more()) {
      as_planned_ = false;
      return 0;
    }
    const Owned key = steal(make_name(NameForm::joined, prefix_.ptr(), name));
    if (!key) {
      return -1;
    }
    as_planned_ = PyUnicode_Compare(key.ptr(), plan_.missing[missing_++].text.ptr()) == 0;
    return 0;
  }

  const LoadPlan &plan_;
  const std::uint32_t visit_;
  std::size_t step_;
  std::size_t missing_;
  const Owned prefix_;
  bool as_planned_ = true;
};

// Lets `match` see the entries of a registry that are loaded; -1 on error.
int see_entries(ModuleObject *module, Slot slot, EntryMatch *match) {
  PyObject *registered, *name, *tensor;
  Owned keep;
  const int found = registry(module, slot, &registered, &keep);
  if (found <= 0) {
    return found;
  }
  RegistryItems items;
  if (items.start(registered) < 0) {
    return -1;
  }
  int more;
  while ((more = items.next(&name, &tensor)) > 0) {
    const Owned held_name = borrow(name), held_tensor = borrow(tensor);
    const int left_out = slot == Slot::buffers ? is_non_persistent(module, name) : 0;
    if (left_out < 0) {
      return -1;
    }
    if (!left_out && tensor != Py_None && match->see(name, tensor) < 0) {
      return -1;
    }
  }
  return more;
}

}  // namespace

template <class IsDue>
int RunningPlan::move_reports(const LoadFindings &findings, IsDue is_due) {
  return append_reports(plan->missing, &missing_, findings.missing(), is_due) < 0 ||
                 append_reports(plan->unexpected, &unexpected_, findings.unexpected(), is_due) <
                     0 ||
                 append_reports(plan->errors, &errors_, findings.errors(), is_due) < 0
             ? -1
             : 0;
}

int RunningPlan::report_until(std::size_t step, const LoadFindings &findings) {
  return move_reports(findings,
                      [step](const LoadPlan::Report &report) { return report.step <= step; });
}

std::size_t RunningPlan::known_until() const {
  return ends_.empty() || visited_ == plan->visits.size() ? plan->steps.size()
                                                          : plan->visits[visited_].step;
}

int RunningPlan::find_change(const LoadFindings &findings, ChangedModule *changed) {
  if (ends_.empty()) {
    begin_to_look();
  }
  const std::vector<LoadPlan::Visit> &visits = plan->visits;
  while (visited_ < visits.size() && visits[visited_].step <= next) {
    const std::uint32_t visit = visited_;
    // The reports that are left then are those of this module and of what follows it.
    const auto is_earlier = [visit](const LoadPlan::Report &report) {
      return report.visit < visit;
    };
    Owned module;
    if (move_reports(findings, is_earlier) < 0 || stands_at(visit, &module) < 0) {
      return -1;
    }
    const int holds = module.ptr() == visits[visit].module ? is_as_planned(visit) : 0;
    if (holds < 0) {
      return -1;
    }
    if (holds) {
      ++visited_;
      continue;
    }
    if (!plan->located && locate_visits(region, plan.get()) < 0) {
      return -1;
    }
    *changed = ChangedModule{module, plan->prefix_of(visit), visits[visit].node};
    if (!changed->prefix) {
      return -1;
    }
    pass_over(visit);
    if (!module.is_none()) {
      return 1;
    }
  }
  return 0;
}

void RunningPlan::begin_to_look() {
  const std::vector<LoadPlan::Visit> &visits = plan->visits;
  const auto count = static_cast<std::uint32_t>(visits.size());
  ends_.resize(count);
  for (std::uint32_t i = count; i-- > 0;) {
    ends_[i] = std::max(ends_[i], i + 1);
    if (i > 0) {
      ends_[visits[i].parent] = std::max(ends_[visits[i].parent], ends_[i]);
    }
  }
  hooked_.resize(count);
  for (const LoadPlan::Step &step : plan->steps) {
    hooked_[step.visit] = hooked_[step.visit] || step.kind == Kind::post_hooks;
  }
  // What has begun before the code ran is done as planned.
  while (visited_ < count && visits[visited_].step < next) {
    ++visited_;
  }
}

// The plan goes on behind the module and what is below it.
void RunningPlan::pass_over(std::uint32_t visit) {
  const std::vector<LoadPlan::Step> &steps = plan->steps;
  const std::uint32_t end = ends_[visit];
  while (next < steps.size() && steps[next].visit >= visit && steps[next].visit < end) {
    ++next;
  }
  visited_ = end;
  skip_until_visit(plan->missing, &missing_, visited_);
  skip_until_visit(plan->unexpected, &unexpected_, visited_);
  skip_until_visit(plan->errors, &errors_, visited_);
}

// What its parent holds under the name of a module now: None where nothing is to be loaded, the
// module itself where it was taken out, as what was there at the start is loaded.
int RunningPlan::stands_at(std::uint32_t visit, Owned *module) const {
  const LoadPlan::Visit &place = plan->visits[visit];
  *module = borrow(place.module);
  PyObject *parent = place.name ? plan->visits[place.parent].module : nullptr;
  if (!parent || !class_info_of(parent).is_module()) {
    return 0;
  }
  PyObject *children;
  Owned keep;
  if (registry(as_module(parent), Slot::modules, &children, &keep) < 0) {
    return -1;
  }
  if (!children || PyDict_CheckExact(children)) {
    PyObject *found = children ? dict_find_str(children, place.name) : nullptr;
    if (found) {
      *module = borrow(found);
    }
    return !found && PyErr_Occurred() ? -1 : 0;
  }
  const Owned held = borrow(children);
  const int listed = mapping_contains(children, place.name);
  if (listed <= 0) {
    return listed;
  }
  *module = steal(PyObject_GetItem(children, place.name));
  return *module ? 0 : -1;
}

int RunningPlan::is_as_planned(std::uint32_t visit) const {
  const std::size_t step = plan->visits[visit].step;
  if (step < plan->steps.size() && plan->steps[step].visit == visit &&
      plan->steps[step].kind == Kind::python) {
    return 1;  // nothing is planned of it before its turn
  }
  if (loads_through_python(plan->visits[visit].module)) {
    return 0;
  }
  int holds = has_planned_entries(visit);
  holds = holds > 0 ? has_planned_children(visit) : holds;
  return holds > 0 ? has_planned_hooks(visit) : holds;
}

int RunningPlan::has_planned_entries(std::uint32_t visit) const {
  if (is_about(plan->errors, errors_, visit)) {
    return 0;  // of a shape that did not fit then
  }
  PyObject *module = plan->visits[visit].module;
  const bool misses_some = is_about(plan->missing, missing_, visit);
  Owned prefix = misses_some ? plan->prefix_of(visit) : Owned();
  if (misses_some && !prefix) {
    return -1;
  }
  EntryMatch match(*plan, visit, missing_, std::move(prefix));
  if (see_entries(as_module(module), Slot::parameters, &match) < 0 ||
      see_entries(as_module(module), Slot::buffers, &match) < 0 ||
      (has_extra_state_setter(module) && match.see_extra_state() < 0)) {
    return -1;
  }
  return match.is_complete();
}

int RunningPlan::has_planned_children(std::uint32_t visit) const {
  PyObject *children, *name, *child;
  Owned keep;
  const int found =
      registry(as_module(plan->visits[visit].module), Slot::modules, &children, &keep);
  if (found < 0) {
    return -1;
  }
  std::uint32_t expected = visit + 1;
  RegistryItems items;
  if (found > 0) {
    if (items.start(children) < 0) {
      return -1;
    }
    int more;
    while ((more = items.next(&name, &child)) > 0) {
      if (child == Py_None) {
        continue;
      }
      if (expected == ends_[visit] || plan->visits[expected].module != child ||
          plan->visits[expected].name != name) {
        return 0;
      }
      expected = ends_[expected];
    }
    if (more < 0) {
      return -1;
    }
  }
  return expected == ends_[visit];
}

int RunningPlan::has_planned_hooks(std::uint32_t visit) const {
  PyObject *hooks;
  Owned keep;
  const int found = registry(as_module(plan->visits[visit].module),
                             Slot::load_state_dict_post_hooks, &hooks, &keep);
  return found < 0 ? -1 : hooked_[visit] == may_give_entries(hooks);
}

}  // namespace modtree
