// SPDX-License-Identifier: BSD-3-Clause
// The native methods and attributes of a tensor: what runs once per entry of a tree or once per
// layer.
#pragma once

#include "tensor/object.h"

namespace modtree {

PyMethodDef *tensor_methods();
PyGetSetDef *tensor_getset();

}  // namespace modtree
