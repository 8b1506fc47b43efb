// SPDX-License-Identifier: BSD-3-Clause
// The parts that know more of CPython and libtorch than their documented interfaces. Each compares
// what it knows with what it finds, and leaves its work to documented functions where that differs
// (docs/lifetime.md, "What modtree knows of others").
#pragma once

#include <string>

namespace modtree {

// False where a part must do without, as if its comparison had failed: in a build with
// MODTREE_NO_INTERNALS, and where the environment variable of that name has the part, or "all".
bool may_know_internals(const std::string &part);

}  // namespace modtree
