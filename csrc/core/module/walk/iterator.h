// SPDX-License-Identifier: BSD-3-Clause
// The iterator behind all walks of a module (BEHAVIOUR 4).
#pragma once

#include "module/object.h"

namespace modtree {

struct Request;

// A lazy iterator over what was asked for. New reference.
PyObject *new_walk(Request request);

// Creates the iterator type and publishes it in `_C` as `Walk`.
void make_walk_type(py::handle m);

}  // namespace modtree
