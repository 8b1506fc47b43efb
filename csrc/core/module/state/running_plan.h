// SPDX-License-Identifier: BSD-3-Clause
// A plan of a load that is being carried out: how far it is, and whether the tree is still as it
// was when it was planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "module/state/load_findings.h"
#include "module/state/load_plan.h"

namespace modtree {

// What becomes of the root of a plan besides its children.
// - planned: its entries and hooks are part of the plan.
// - done: its entries are loaded, its hooks run at the end of the plan.
// - elsewhere: another plan has both.
enum class RootEntries : std::uint8_t { planned, done, elsewhere };

// A module that Python code has put into the tree, or changed, since its load was planned.
struct ChangedModule {
  py::object module;
  py::object prefix;
  KeyIndex::NodeId node = KeyIndex::kNone;  // in the index of the plan's region
};

class RunningPlan {
public:
  // `python_runs`: how often Python code had run in this load when it was planned.
  RunningPlan(LoadRegion region, std::shared_ptr<LoadPlan> plan, RootEntries root_entries,
              std::size_t python_runs)
      : region(std::move(region)),
        plan(std::move(plan)),
        root_entries(root_entries),
        python_runs(python_runs) {}

  LoadRegion region;
  std::shared_ptr<LoadPlan> plan;
  RootEntries root_entries;
  std::size_t python_runs;
  std::size_t next = 0;  // the step that is next

  // Moves the reports that are due before a step into the lists; -1 on error.
  int report_until(std::size_t step, const LoadFindings &findings);

  // Looks again at the modules whose turn has come, to be called before each step once Python code
  // has run since they were planned. 1: *changed is not as planned, and the plan goes on behind it;
  // 0: all are as planned, -1 on error.
  int find_change(const LoadFindings &findings, ChangedModule *changed);

  // The first step of which the module is still to be looked at again: none while no Python code
  // has run.
  std::size_t known_until() const;

private:
  template <class IsDue>
  int move_reports(const LoadFindings &findings, IsDue is_due);
  void begin_to_look();
  void pass_over(std::uint32_t visit);
  int is_as_planned(std::uint32_t visit) const;
  int has_planned_entries(std::uint32_t visit) const;
  int has_planned_children(std::uint32_t visit) const;
  int has_planned_hooks(std::uint32_t visit) const;
  int stands_at(std::uint32_t visit, py::object *module) const;

  // Reports made so far.
  std::size_t missing_ = 0, unexpected_ = 0, errors_ = 0;
  // By visit, the first one that is not below it, and whether its post hooks are a step; both empty
  // while no Python code has run.
  std::vector<std::uint32_t> ends_;
  std::vector<bool> hooked_;
  // The first visit to look at again.
  std::uint32_t visited_ = 0;
};

}  // namespace modtree
