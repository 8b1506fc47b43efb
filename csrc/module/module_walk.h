// SPDX-License-Identifier: BSD-3-Clause
// Pre-order walk over the modules of a tree, one module at a time and without recursion.
#pragma once

#include <vector>

#include "module/object.h"
#include "module/seen.h"

namespace modtree {

// A module that the walk has reached; both owned. `name` is null when the walk makes no names.
struct Visit {
  py::object name;
  py::object module;
};

class ModuleWalk {
public:
  // `memo` (may be null) is the caller's set. Names are made only when `named`.
  ModuleWalk(PyObject *prefix, bool remove_duplicate, bool named, PyObject *memo);
  ModuleWalk(const ModuleWalk &) = delete;
  ModuleWalk &operator=(const ModuleWalk &) = delete;

  // Starts at a module, natively.
  void start(PyObject *root) { root_ = py::reinterpret_borrow<py::object>(root); }
  // Starts with (name, module) pairs from elsewhere: the result of an overridden named_modules().
  int start_with_pairs(PyObject *iterable);

  // 1 and *visit set, 0 at the end, -1 on error. May run user code (overrides, __eq__ and __hash__ of modules).
  int next(Visit *visit);

  int traverse(visitproc visit, void *arg) const;

private:
  // One open module: its children are being visited. Or, with `pairs`, one subtree that Python walks.
  struct Frame {
    py::object module;
    py::object key;     // the name under which the parent holds the module
    py::object prefix;  // full name; null when not made
    RegistryItems children;
    bool opened = false;
    py::object pairs;
  };

  int enter(PyObject *module, PyObject *key, Visit *visit);
  int enter_foreign(PyObject *module, PyObject *key);
  int next_child(Visit *visit, bool *found);
  int next_pair(Visit *visit, bool *found);
  void pop();
  py::object full_name(PyObject *key);
  py::object path_of_top();
  int raise_cycle(PyObject *module, PyObject *key);

  std::vector<Frame> stack_;
  SeenSet seen_;
  PointerSet on_path_;  // only without de-duplication, which would walk a cycle for ever
  py::object root_;
  py::object prefix_;
  bool remove_duplicate_;
  bool named_;
  std::size_t position_ = 0;
};

}  // namespace modtree
