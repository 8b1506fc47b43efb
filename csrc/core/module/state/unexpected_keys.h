// SPDX-License-Identifier: BSD-3-Clause
// The keys of a state dict that no module of a plan asked for.
#pragma once

#include "module/state/load_plan.h"

namespace modtree {

// Puts them into plan->unexpected, with the module that would have to load them. Builds the
// region's index when it has none. -1 on error.
int find_unexpected_keys(LoadRegion &region, LoadPlan *plan);

// Finds the nodes of the plan's visits, with an index that is built when the region has none. -1 on
// error.
int locate_visits(LoadRegion &region, LoadPlan *plan);

}  // namespace modtree
