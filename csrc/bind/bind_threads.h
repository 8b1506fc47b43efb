// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bind/functions.h"

namespace modtree {

// Adds the number of threads that kernels use.
void bind_threads(Functions &functions);

}  // namespace modtree
