// SPDX-License-Identifier: BSD-3-Clause
// What native code uses of modtree's Python modules. Each of them hands its own over while it is
// imported, by `_C._install(name=object, ...)`: native code imports nothing of modtree, and all
// that crosses from there to here stands in this list.
#pragma once

#include "python/call.h"

namespace modtree {

#define MODTREE_INSTALLED(X)                                                                       \
  /* classes */                                                                                    \
  X(IncompatibleKeys)                                                                              \
  X(Parameter)                                                                                     \
  X(PickledTable)                                                                                  \
  X(RemovableHandle)                                                                               \
  X(Size)                                                                                          \
  X(StateDict)                                                                                     \
  X(Tensor)                                                                                        \
  /* other objects */                                                                              \
  X(cpu_device)                                                                                    \
  X(meta_device)                                                                                   \
  X(numpy_family)                                                                                  \
  /* functions */                                                                                  \
  X(as_device)                                                                                     \
  X(attach_legacy_backward_hooks)                                                                  \
  X(dtype_by_name)                                                                                 \
  X(find_family)                                                                                   \
  X(find_operation)                                                                                \
  X(fit_gradient)                                                                                  \
  X(get_overwrite_module_params_on_conversion)                                                     \
  X(get_swap_module_params_on_conversion)                                                          \
  X(is_foreign_module_class)                                                                       \
  X(make_backward_tap)                                                                             \
  X(refuse_double_backward)                                                                        \
  X(walk_twin)                                                                                     \
  X(warn_of_foreign_child)                                                                         \
  X(warn_of_foreign_parent)                                                                        \
  X(with_arguments)

// Owned for the life of the process, also what another has replaced; null before it was installed.
struct Installed {
#define MODTREE_MEMBER(name) PyObject *name = nullptr;
  MODTREE_INSTALLED(MODTREE_MEMBER)
#undef MODTREE_MEMBER
};

extern Installed installed;

// The cell of a name; null when the list has no such name.
PyObject **installed_cell(const char *name);

// The first name that nothing was installed for; null when there is none.
const char *first_not_installed();

// The object, which is one of `installed`; null with a RuntimeError where it is missing.
PyObject *need_installed(PyObject *object);

// function(args...), where the function is one of `installed`; null on error.
template <class... Args>
py::object call_installed(PyObject *function, const Args &...args) {
  return need_installed(function) ? call(function, args...) : py::object();
}

}  // namespace modtree
