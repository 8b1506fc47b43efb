// SPDX-License-Identifier: BSD-3-Clause
// What a tree of containers and modules is without its leaves: comparable, hashable, and enough to
// find the leaves of another such tree, or to make modules of leaves.
#pragma once

#include <pybind11/pytypes.h>

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "module/object.h"
#include "module/split/static_values.h"

namespace modtree {

// An entry of a module's parameters or buffers. `leaf` is an index; -1 for None.
struct LeafPlace {
  py::object name;
  int module;
  int leaf;
  bool is_parameter;
};

// An entry of a module's children. `module` is an index; -1 for None. `is_first`: the walk meets
// the child here, and the child's own children next.
struct ChildPlace {
  py::object name;
  int module;
  bool is_first;
};

struct StaticAttribute {
  py::object name;
  StaticItem value;
};

constexpr int kFirstHookSlot = static_cast<int>(Slot::backward_pre_hooks);
constexpr int kHookSlots = static_cast<int>(Slot::modules) - kFirstHookSlot;
using HookValues = std::array<StaticItem, kHookSlots>;

// One module, in pre-order. What it has is a part of each of the lists of the structure.
struct ModuleRecord {
  py::object type;
  py::object training;
  py::object non_persistent;          // a frozenset; null: empty
  std::unique_ptr<HookValues> hooks;  // null: none
  int parent;                         // an index; -1 for a root
  int root;                           // an index of Structure::roots
  py::object name;                    // under which the parent has it; null for a root
  int first_place, parameters, buffers;
  int first_child, children;
  int first_attribute, attributes;
};

// A part of the containers around the modules, in pre-order.
struct TreeNode {
  enum class Kind : std::uint8_t {
    other,   // no module in it: handed on as it is
    module,  // `index` is the module's
    tuple,   // `count` nodes follow; `type` is its class where that is a named tuple
    list,
    dict,  // `keys` are its keys
  };
  Kind kind;
  int index;
  int count;
  py::object type;
  std::vector<py::object> keys;
};

struct Structure {
  std::vector<TreeNode> nodes;
  std::vector<ModuleRecord> modules;
  std::vector<LeafPlace> places;
  std::vector<ChildPlace> children;
  std::vector<StaticAttribute> attributes;
  StaticValues values;            // of attributes and hooks
  std::vector<py::object> roots;  // where each root is: a tuple of positions and keys
  int leaf_count = 0;
  int other_count = 0;  // nodes of the kind `other`
  std::size_t hash = 0;

  // The path of a module from its root; throws error_already_set.
  py::object path_of(int module) const;
  // 1 or 0, or -1 with an error set: comparing attributes may run user code.
  int equals(const Structure &other) const;
  void compute_hash();
  int traverse(visitproc visit, void *arg) const;
};

// The lists that a walk fills beside the structure: what it was made of.
struct SplitValues {
  std::vector<py::object> modules;
  py::object leaves;  // a list, one item a leaf
  py::object others;  // a list, one item a node of the kind `other`
};

// Walks over the tree and notes all. Runs user code where a registry is not a plain table. Throws
// error_already_set.
//
// Containers on the first `levels` levels are parts of the structure also without a module in them.
//
// `hints`, a dict or null, has what is known of leaves by where they are: see split_modules().
void build_structure(py::handle tree, Keep keep, int levels, PyObject *hints, Structure *structure,
                     SplitValues *values);

// Walks over a tree that may have this structure, and collects the values if so. False: it has
// another one, or that is only known by building it. Runs no user code but the collector, before
// the walk, and comparisons of sets, after it. Throws error_already_set where memory ends.
bool match_structure(const Structure &structure, PyObject *tree, SplitValues *values);

// The value of a hook entry, or null where it is as that of a module without hooks. Borrowed.
PyObject *hook_value(ModuleObject *module, int index);

// True for a tuple of the class itself or a named tuple, whose items native code may read.
bool is_plain_tuple(PyObject *value);

// Looks for modules in containers of the kinds of TreeNode, at any depth, in each container once.
class ModuleSearch {
public:
  // -1 with an error set where they are nested too deeply. Runs user code.
  int find(PyObject *value);
  // -1, without an error, where that is only known by find().
  int find_without_user_code(PyObject *value);

private:
  int search(PyObject *value);
  int search_items(PyObject *value);

  std::unordered_map<PyObject *, bool> known_;
  std::vector<py::object> held_;  // the containers that are known, while user code runs
  bool runs_user_code_ = false;
  long steps_ = 0;
  SignalCheck signals_;
};

// Modules as the structure has them, with these leaves, in pre-order. Attributes are shared with
// what the structure was made of. `known` has None, or a module to be used as it is, for each; or
// is null. Throws error_already_set.
std::vector<py::object> make_modules(const Structure &structure, py::handle leaves,
                                     py::handle known);

// The containers of the structure around these modules; the items of `others` take the places of
// those without modules. Throws error_already_set.
py::object rebuild_containers(const Structure &structure, const std::vector<py::object> &modules,
                              py::handle others);

// The type of structures, and the functions around it.
void make_split_types(py::handle m);
// A new ModuleSplit of a tree; `known` is a ModuleStructure that it may have, a list of them, or
// None. A structure that was not known is kept weakly if `weak`. Throws error_already_set.
//
// `hints`: id of a module -> (weak reference to it, {name: (value, leaf)}), or None. An entry that
// has this very value is one leaf with all entries that have this object `leaf`, and no others,
// also where the value is None.
py::object split_modules(py::handle tree, py::handle known, bool weak, std::int64_t levels,
                         py::handle hints);

}  // namespace modtree
