// SPDX-License-Identifier: BSD-3-Clause
// The native methods of Module for the table in type.cpp, by the file that has them. Methods that
// other native code calls too are in the headers of their files.
#pragma once

#include "module/object.h"

namespace modtree {

// attributes/registration.cpp: add what is checked (BEHAVIOUR 3.1)
PyObject *module_register_parameter(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords);
PyObject *module_register_buffer(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords);
PyObject *module_add_module(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);

// walk/iterator_methods.cpp: the iterators over a tree (BEHAVIOUR 4)
PyObject *module_parameters(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);
PyObject *module_named_parameters(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords);
PyObject *module_buffers(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords);
PyObject *module_named_buffers(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords);
PyObject *module_children(PyObject *self_obj, PyObject *);
PyObject *module_named_children(PyObject *self_obj, PyObject *);
PyObject *module_modules(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords);
PyObject *module_named_modules(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords);
PyObject *module_named_members(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords);

// walk/apply.cpp: apply(fn), a function of modules (BEHAVIOUR 5.1)
PyObject *module_apply(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords);

// convert/convert_tree.cpp: _apply(fn), a function of tensors (BEHAVIOUR 5.5)
PyObject *module_apply_(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                        PyObject *keywords);

// walk/train.cpp: the mode (BEHAVIOUR 5.2)
PyObject *module_train(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords);
PyObject *module_eval(PyObject *self_obj, PyObject *);

// walk/parameter_flags.cpp: over self.parameters() (BEHAVIOUR 5.3, 5.4)
PyObject *module_requires_grad_(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords);
PyObject *module_zero_grad(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords);

// state/ (BEHAVIOUR 7, 8): state_dict.cpp, save_module.cpp, load_state_dict.cpp, load_module.cpp
PyObject *module_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);
PyObject *module_save_to_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords);
PyObject *module_load_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords);
PyObject *module_load_from_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                      PyObject *keywords);

}  // namespace modtree
