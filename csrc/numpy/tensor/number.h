// SPDX-License-Identifier: BSD-3-Clause
// Python's operators on tensors: arithmetic, comparison, subscripts, conversion to numbers.
#pragma once

#include <vector>

#include "tensor/object.h"

namespace modtree {

void add_number_slots(std::vector<PyType_Slot> &slots);

}  // namespace modtree
