// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "bind/functions.h"

namespace modtree {

// Adds the tensor to the extension module: its type, dtypes, the operation type, the NumPy family.
void bind_tensor(Functions &functions);

// Adds the node type, and what modtree.autograd calls.
void bind_autograd(Functions &functions);

}  // namespace modtree
