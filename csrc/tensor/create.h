// SPDX-License-Identifier: BSD-3-Clause
// Making tensors out of arrays: the native end of modtree.creation.
#pragma once

#include "tensor/object.h"

namespace modtree {

void bind_create(py::module_ &m);

}  // namespace modtree
