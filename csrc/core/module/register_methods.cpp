// SPDX-License-Identifier: BSD-3-Clause
#include "module/register_methods.h"

#include "module/registration.h"
#include "python/arguments.h"

namespace modtree {

PyObject *module_register_parameter(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords) {
  static const ArgumentNames kNames = {"register_parameter", {"name", "param"}, 2};
  PyObject *values[2] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0 ||
      register_parameter(as_module(self_obj), values[0], values[1]) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *module_register_buffer(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords) {
  static const ArgumentNames kNames = {"register_buffer", {"name", "tensor", "persistent"}, 2};
  PyObject *values[3] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0) {
    return nullptr;
  }
  const int persistent = values[2] ? PyObject_IsTrue(values[2]) : 1;
  if (persistent < 0 ||
      register_buffer(as_module(self_obj), values[0], values[1], persistent == 1) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject *module_add_module(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords) {
  static const ArgumentNames kNames = {"add_module", {"name", "module"}, 2};
  PyObject *values[2] = {};
  if (parse_arguments(kNames, args, count, keywords, values) < 0 ||
      add_module(as_module(self_obj), values[0], values[1]) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace modtree
