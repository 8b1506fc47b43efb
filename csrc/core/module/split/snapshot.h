// SPDX-License-Identifier: BSD-3-Clause
// What modules hold, for putting it back after a function has had them.
#pragma once

#include <pybind11/pytypes.h>

#include <vector>

#include "module/split/structure.h"

namespace modtree {

// A list with one tuple for each module: for each internal attribute, and last for the instance
// dict, None or (object, copy of its contents or None). Throws error_already_set.
py::object take_snapshot(const std::vector<py::object> &modules);

// Makes the modules hold again what they held, in the very tables. Goes on after an error, and
// throws the first one, error_already_set.
void restore_snapshot(const std::vector<py::object> &modules, py::handle snapshot);

// Puts leaves into the registries: `places` and `values` have the same length; `places` are indices
// of Structure::places. All or none: where an entry is missing by now, RuntimeError, and nothing
// was written. Throws error_already_set.
//
// `marks`, a tuple of names or null: the attributes of an object that go on from the value before
// to the one that takes its place, where that takes attributes. Returns for how many it does not.
int write_places(const Structure &structure, const std::vector<py::object> &modules,
                 const std::vector<int> &places, const std::vector<PyObject *> &values,
                 PyObject *marks);

// The attribute of the object's own, which may be null: borrowed where its dict is known, and else
// owned by *keep. Null without an error where it has none. May run user code.
PyObject *own_mark(PyObject *object, PyObject *name, py::object *keep);

}  // namespace modtree
