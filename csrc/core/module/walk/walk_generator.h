// SPDX-License-Identifier: BSD-3-Clause
// What makes a walk answer as a generator: send, throw, the gi_ attributes.
#pragma once

#include "module/walk/walk.h"

namespace modtree {

PyObject *walk_send(PyObject *self_obj, PyObject *value);
PyObject *walk_throw(PyObject *self_obj, PyObject *args);
PyObject *walk_tp_repr(PyObject *self_obj);

extern PyGetSetDef walk_getset[];

}  // namespace modtree
