// SPDX-License-Identifier: BSD-3-Clause
// Module.state_dict (BEHAVIOUR 7).
#pragma once

#include "module/object.h"

namespace modtree {

// state_dict($self, *args, destination=None, prefix='', keep_vars=False, clone=False)
PyObject *module_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);

}  // namespace modtree
