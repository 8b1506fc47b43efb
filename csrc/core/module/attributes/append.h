// SPDX-License-Identifier: BSD-3-Clause
// Children that are appended to a container which names them by their positions.
#pragma once

#include "module/object.h"

namespace modtree {

// `container.add_module(name, module)` for each of the modules, with the names '0', '1', ... from
// `first` on, up to the first one for which that takes a longer look: a name that is taken or is
// not the position, a value that is not a module, a registration hook, a class or instance with a
// method or attribute of its own in the way. Returns how many it has appended. Throws
// error_already_set.
std::int64_t append_children(const py::object &container, const py::tuple &modules,
                             std::int64_t first);

}  // namespace modtree
