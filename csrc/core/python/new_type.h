// SPDX-License-Identifier: BSD-3-Clause
// Making the extension's types at import.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// A type made from its spec and published in the extension module. The reference is the caller's,
// who keeps it for the life of the process: native code compares against it at any time. Throws
// error_already_set.
inline PyTypeObject *new_type(pybind11::handle module, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromModuleAndSpec(module.ptr(), spec, nullptr);
  if (!type || PyModule_AddObjectRef(module.ptr(), name, type) < 0) {
    throw pybind11::error_already_set();
  }
  return reinterpret_cast<PyTypeObject *>(type);
}

}  // namespace modtree
