// SPDX-License-Identifier: BSD-3-Clause
// What a walk looks at next: the state behind the iterator, and its steps.
#pragma once

#include <memory>

#include "module/walk/preorder_walk.h"

namespace modtree {

enum class WalkKind : std::uint8_t { modules, children, parameters, buffers, members };

// What the caller asked for; looked at when the first item is wanted, as a generator would.
struct Request {
  WalkKind kind = WalkKind::modules;
  bool named = false;
  bool recurse = true;
  bool remove_duplicate = true;
  py::object root;
  py::object prefix;          // str
  py::object memo;            // named_modules: the caller's set, or null
  py::object get_members_fn;  // _named_members
};

// A running walk.
// - request.root is dropped when the walk starts.
// - modules: the walk over modules; null for a walk within one module.
// - gives_modules: `modules` is all that the items come from, and without their names.
// - pairs: an iterator of (name, value) made by an override, whose items are passed on.
// - entries, members: the registry of the current module, or what get_members_fn gave for it.
// - owner: the name of the current module.
struct Walk {
  Request request;
  bool started = false;
  bool finished = false;
  bool running = false;
  bool gives_modules = false;
  std::unique_ptr<PreorderWalk> modules;
  py::object pairs;
  RegistryItems entries;
  py::object members;
  py::object owner;
  py::object current;
  SeenSet seen;
  SignalCheck signals;  // of the items of one module; `modules` has its own
  PyTypeObject *tensor_type =
      nullptr;  // of the last tensor; borrowed, only compared with the types of living values
  std::size_t position = 0;

  // The next item as a new reference; null at the end or on error (then PyErr_Occurred).
  PyObject *next() {
    if (gives_modules && modules->next_plain() > 0) {
      return Py_NewRef(modules->entered_module());
    }
    if (current && !members) {
      PyObject *found = next_registered();
      if (found || PyErr_Occurred()) {
        return found;
      }
      current = py::object();
    }
    return next_any();
  }

  // The same for the most common case of a walk over modules, or null without an error where next()
  // must be asked. Runs no user code.
  PyObject *next_sibling() noexcept {
    return gives_modules && !running ? modules->next_sibling() : nullptr;
  }

private:
  PyObject *next_any();
  int start();
  PyObject *next_member();
  PyObject *next_pair();
  PyObject *next_child();
  PyObject *next_module();
  int open(py::object reached, bool is_ours);
  int open_next();
  int next_pair_of_members(py::object *key, py::object *value);
  PyObject *next_registered();
  PyObject *next_given();
  PyObject *item(PyObject *key, PyObject *value);
  int start_modules();
  int start_override(PyObject *result);
};

}  // namespace modtree
