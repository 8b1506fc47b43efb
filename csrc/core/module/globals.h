// SPDX-License-Identifier: BSD-3-Clause
// Process-wide hook tables (BEHAVIOUR 13) and what native code calls back in Python for cold work.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

namespace py = pybind11;

// Each is an OrderedDict, made once and also visible as an attribute of `modtree.core.module`.
struct GlobalHooks {
  PyObject *buffer_registration;
  PyObject *module_registration;
  PyObject *parameter_registration;
  PyObject *backward_pre;
  PyObject *backward;
  PyObject *forward_pre;
  PyObject *forward;
  PyObject *forward_always_called;
  PyObject *forward_with_kwargs;
};
extern GlobalHooks global_hooks;

// Makes the tables and publishes them in `_C` under torch's names.
void bind_global_hooks(py::handle m);

inline bool has_entries(PyObject *table) { return PyDict_GET_SIZE(table) != 0; }

// The value after the registration hooks of one kind have seen it: new reference, null on error.
PyObject *run_registration_hooks(PyObject *table, PyObject *module, PyObject *name,
                                 PyObject *value);

}  // namespace modtree
