// SPDX-License-Identifier: BSD-3-Clause
// Module.load_state_dict (BEHAVIOUR 8).
#pragma once

#include "module/object.h"

namespace modtree {

// load_state_dict($self, state_dict, strict=True, assign=False)
PyObject *module_load_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords);

}  // namespace modtree
