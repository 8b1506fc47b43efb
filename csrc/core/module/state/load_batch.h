// SPDX-License-Identifier: BSD-3-Clause
// Steps of a load that are taken together: copies by one call of a tensor library, and what is
// brought near before its turn.
#pragma once

#include <cstddef>

#include "module/state/load_plan.h"
#include "module/state/running_plan.h"
#include "python/signals.h"

namespace modtree {

// How many entries from `number` on can be copied by one call: 0 or 1 when that saves nothing.
std::size_t batch_from(const LoadPlan &plan, std::size_t number);

// Copies that many entries by one call: 1; 0 when they must be copied one by one; -1 on error.
int copy_batch(const LoadPlan &plan, std::size_t number, std::size_t count);

// Makes the next steps of a plan, as far as they are copies of memory and signals need not be
// looked at. False: the next one is not.
bool copy_memory_of(RunningPlan *running, SignalCheck *signals);

// Brings near what the entries after this one will read: in a large tree, nothing that the first
// pass has read is in the caches any more.
void look_ahead(const LoadPlan &plan, std::size_t number);

// Lets go of the tensors of entries that are stored, while they are still in the caches: at the end
// of a large plan they are not. Tensors may die here, and run Python code.
void let_go(LoadPlan &plan, std::size_t number, std::size_t count);

}  // namespace modtree
