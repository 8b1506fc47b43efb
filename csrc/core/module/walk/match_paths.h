// SPDX-License-Identifier: BSD-3-Clause
// The modules, parameters and buffers of a tree whose paths a machine accepts (_patterns.py).
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// A list of (path, object), each module before what is below it; an object that hangs at several
// places may come several times. A prefix that cannot match is not entered. `states`, `start` and
// `ask` are those of a Machine; `tables`: the registries whose values are matched, or None for the
// modules themselves. Runs user code of registries that are not plain dicts. Throws
// error_already_set.
pybind11::object match_paths(pybind11::handle root, pybind11::handle states, Py_ssize_t start,
                             pybind11::handle ask, pybind11::handle tables);

}  // namespace modtree
