// SPDX-License-Identifier: BSD-3-Clause
// The first pass of load_state_dict: finds and checks every entry of the native modules of a tree,
// and writes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "module/object.h"
#include "module/state/key_index.h"
#include "module/state/load_entry.h"

namespace modtree {

// What a part of the tree loads from: the caller's mapping, or the dict that a module with Python
// code got and may have changed.
struct LoadRegion {
  py::object dict;  // an exact dict or an OrderedDict
  std::shared_ptr<KeyIndex>
      index;  // of the dict or of one that had the same entries; null until needed
  KeyIndex::NodeId node = KeyIndex::kRoot;  // of the region in the index
};

// What is to be done, in torch's order, and what is to be reported when.
class LoadPlan {
public:
  enum class Kind : std::uint8_t {
    entry,        // store `source` into `tensor`
    extra_state,  // call set_extra_state(source)
    python,  // a module with Python code: its _load_from_state_dict, then a plan for its children
    post_hooks,  // a native module is done
  };
  // Owns its references but the family; the module is that of the visit. Small, as a large tree has
  // many: what only errors ask for is found out then.
  struct Step {
    Kind kind;
    std::uint32_t visit;
    PyObject *name = nullptr;
    PyObject *tensor = nullptr;
    PyObject *source = nullptr;
    TensorFamily *family = nullptr;
  };
  // A module on the walk; owns its references.
  struct Visit {
    PyObject *module;
    PyObject *name;  // null for the root
    std::uint32_t parent;
    std::uint32_t step;      // the number of steps before it
    bool judged;             // native: its unexpected keys are found here
    bool below_extra_state;  // an ancestor in the plan has its extra state set, which may change
                             // everything here
    bool has_extra_state;    // its own is set
    KeyIndex::NodeId node;
  };
  // A text for one of the three lists, due when the step of that number is reached.
  struct Report {
    std::size_t step;
    std::uint32_t visit;  // the module that it is about
    py::object text;
    bool provisional;  // a set_extra_state of this plan may put it right
  };

  // `prefix`: of the root, which is visit 0.
  explicit LoadPlan(PyObject *prefix) : prefix(py::reinterpret_borrow<py::object>(prefix)) {}
  LoadPlan(const LoadPlan &) = delete;
  LoadPlan &operator=(const LoadPlan &) = delete;
  ~LoadPlan();

  // The prefix of a visit's module, and the full name of an entry; null on error.
  py::object prefix_of(std::uint32_t visit) const;
  py::object key_of(const Step &entry) const;

  const py::object prefix;

  std::vector<Step> steps;
  std::vector<Visit> visits;
  std::vector<Report> missing, unexpected, errors;
  std::vector<py::object> meta_keys;  // of entries whose copy has no effect
  bool has_python = false;
  bool may_change = false;  // there is something below a module whose extra state is set
  bool has_post_hooks = false;
  bool located = false;  // the visits' nodes are set
};

// True if this module needs its own dict and Python calls when it is loaded.
bool loads_through_python(PyObject *module);

// 1 for a native module whose set_extra_state will be called with an entry of `dict`, -1 on error.
int sets_extra_state(PyObject *module, PyObject *prefix, PyObject *dict);

struct LoadPlanOptions {
  LoadMode mode;
  PyObject *bad_metadata = nullptr;  // a set of paths whose metadata is not a mapping, or null
  // Plan modules whose extra state is set as if they had Python code: their children are planned
  // when it has run.
  bool split = false;
};

// Plans the tree below `root`, whose prefix the plan has. `root_is_done`: its own entries are
// loaded already. May fill region.index. -1 on error.
int build_load_plan(LoadRegion &region, PyObject *root, bool root_is_done,
                    const LoadPlanOptions &options, LoadPlan *plan);

}  // namespace modtree
