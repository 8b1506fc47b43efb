// SPDX-License-Identifier: BSD-3-Clause
// The parameters of a tree in which nothing runs user code, without references.
#pragma once

#include <vector>

#include "family/family.h"
#include "module/walk/look_ahead.h"
#include "module/walk/plain_class.h"
#include "module/walk/pointer_set.h"
#include "python/signals.h"

namespace modtree {

// Goes through the registries in the order of the walk that owns what it uses. All pointers are
// into a tree that does not change meanwhile.
class PlainParameters {
public:
  // Calls visit(family, parameter) -> bool for those of `root` and of all below; one that is
  // registered several times, or in a module without children that is, may come as often. `visit`
  // runs no user code. True: it was true of all. False: it was not, or something in the tree is not
  // plain, or the tree is so large that signals are to be looked at; the rest was not visited.
  template <class Visit>
  bool all(PyObject *root, Visit visit) {
    if (!is_plain_state(root) || !visit_members(root, visit)) {
      return false;
    }
    seen_.insert(root);
    open(root);
    while (!path_.empty()) {
      if (!visit_children(visit)) {
        return false;
      }
    }
    return true;
  }

private:
  struct Place {
    PyObject *children;
    Py_ssize_t position;  // of dict_next()
  };

  // Until a child has children itself, or to their end.
  template <class Visit>
  bool visit_children(Visit visit) {
    Place &place = path_.back();
    PyObject *key, *child;
    while (dict_next(place.children, &place.position, &key, &child)) {
      if (child == Py_None) {
        continue;
      }
      if (--left_ < 0 || !PyUnicode_CheckExact(key) || !is_plain(child)) {
        return false;
      }
      ahead_.from(
          [&](int places) { return dict_value_ahead(place.children, place.position, places - 1); },
          Py_TYPE(child), families_.last());
      const PyObject *children = as_module(child)->state.modules;
      const bool has_children = children && PyDict_GET_SIZE(children) != 0;
      // What only this registry holds is met but once, and what has no children may come again.
      if (has_children && !is_sole_reference(child) && !seen_.insert(child)) {
        continue;
      }
      if (!visit_members(child, visit)) {
        return false;
      }
      if (has_children) {
        open(child);
        return true;
      }
    }
    path_.pop_back();
    return true;
  }

  template <class Visit>
  bool visit_members(PyObject *module, Visit visit) {
    PyObject *parameters = as_module(module)->state.parameters;
    if (!parameters) {
      return true;
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (dict_next(parameters, &position, &key, &value)) {
      if (value == Py_None) {
        continue;
      }
      TensorFamily *family = families_.known(value);
      if (!family || !visit(family, value)) {
        return false;
      }
    }
    return true;
  }

  // Of a plain module.
  void open(PyObject *module) {
    PyObject *children = as_module(module)->state.modules;
    if (children && PyDict_GET_SIZE(children) != 0) {
      path_.push_back({children, 0});
    }
  }

  // Has it nothing of its own that walks ask, and are its registries dicts?
  static bool is_plain_state(PyObject *module) {
    const ModuleState &state = as_module(module)->state;
    return state.initialized && !may_override(as_module(module)) &&
           (!state.modules || PyDict_CheckExact(state.modules)) &&
           (!state.parameters || PyDict_CheckExact(state.parameters));
  }

  bool is_plain(PyObject *child) { return plain_class_.has(child) && is_plain_state(child); }

  std::vector<Place> path_;
  PointerSet seen_;  // of those with children that somebody else holds as well
  FamilyMemo families_;
  LookAhead<ReadsOf::gradient> ahead_;
  PlainClass<Virtual::named_modules, Virtual::getattribute> plain_class_;
  long left_ = kStepsWithoutReferences;
};

}  // namespace modtree
