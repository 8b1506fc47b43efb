// SPDX-License-Identifier: BSD-3-Clause
// The mode of every module of a tree: train and eval (BEHAVIOUR 5.2).
#pragma once

#include "module/object.h"

namespace modtree {

PyObject *module_train(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords);
PyObject *module_eval(PyObject *self_obj, PyObject *);

}  // namespace modtree
