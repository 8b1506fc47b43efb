// SPDX-License-Identifier: BSD-3-Clause
// The iterator behind all walks of a module (BEHAVIOUR 4).
#pragma once

#include "module/object.h"

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

// A lazy iterator over what was asked for. New reference.
PyObject *new_walk(Request request);

// Creates the iterator type and publishes it in `_C` as `Walk`.
void make_walk_type(py::handle m);

}  // namespace modtree
