// SPDX-License-Identifier: BSD-3-Clause
// Indexing: tensor[index] and tensor[index] = value.
#pragma once

#include "tensor/object.h"

namespace modtree {

PyObject *mp_subscript(PyObject *self, PyObject *index);
int mp_ass_subscript(PyObject *self, PyObject *index, PyObject *value);

// Adds `own_index` and `get_items` to the module.
void add_index_functions(py::handle m);

}  // namespace modtree
