// SPDX-License-Identifier: BSD-3-Clause
// What native code uses of modtree's Python modules. Each of them hands its own over while it is
// imported, by `_C._install(name=object, ...)`: native code imports nothing of modtree, and this
// list has all that crosses from there to here.
#pragma once

#include <cstdint>

#include "python/call.h"

namespace modtree {

#define MODTREE_INSTALLED(X)                                                                       \
  X(IncompatibleKeys, type)                                                                        \
  X(Parameter, type)                                                                               \
  X(PickledTable, type)                                                                            \
  X(RemovableHandle, type)                                                                         \
  X(Size, type)                                                                                    \
  X(StateDict, type)                                                                               \
  X(Tensor, type)                                                                                  \
  X(cpu_device, object)                                                                            \
  X(meta_device, object)                                                                           \
  X(numpy_family, object)                                                                          \
  X(as_device, function)                                                                           \
  X(attach_legacy_backward_hooks, function)                                                        \
  X(base_of_part, function)                                                                        \
  X(base_part, function)                                                                           \
  X(base_with_part, function)                                                                      \
  X(call_by_name, function)                                                                        \
  X(describe_arguments, function)                                                                  \
  X(describe_hook, function)                                                                       \
  X(dtype_by_name, function)                                                                       \
  X(explain_anomaly, function)                                                                     \
  X(explain_given, function)                                                                       \
  X(explain_load, function)                                                                        \
  X(find_family, function)                                                                         \
  X(find_operation, function)                                                                      \
  X(fit_gradient, function)                                                                        \
  X(forward_traceback, function)                                                                   \
  X(function_elsewhere, function)                                                                  \
  X(get_overwrite_module_params_on_conversion, function)                                           \
  X(get_swap_module_params_on_conversion, function)                                                \
  X(is_foreign_module_class, function)                                                             \
  X(load_with_options, function)                                                                   \
  X(make_backward_tap, function)                                                                   \
  X(pack_saved, function)                                                                          \
  X(reduce_parameter, function)                                                                    \
  X(remember_loaded, function)                                                                     \
  X(refuse_double_backward, function)                                                              \
  X(refuse_nan, function)                                                                          \
  X(unpack_saved, function)                                                                        \
  X(walk_twin, function)                                                                           \
  X(warn_of_foreign_child, function)                                                               \
  X(warn_of_foreign_parent, function)                                                              \
  X(with_arguments, function)

// Owned for the life of the process, also what another has replaced; null before it was installed.
struct Installed {
#define MODTREE_MEMBER(name, kind) PyObject *name = nullptr;
  MODTREE_INSTALLED(MODTREE_MEMBER)
#undef MODTREE_MEMBER
};

extern Installed installed;

enum class InstalledKind : std::uint8_t { type, object, function };

struct InstalledCell {
  const char *name;
  PyObject **cell;
  InstalledKind kind;
};

// The cell of a name; null when the list has no such name.
const InstalledCell *installed_cell(const char *name);

// {name: object}, with None for what is missing; null on error.
PyObject *all_installed();

// The object, which is one of `installed`; null with a RuntimeError where it is missing.
PyObject *need_installed(PyObject *object);

// function(args...), where the function is one of `installed`; null on error.
template <class... Args>
py::object call_installed(PyObject *function, const Args &...args) {
  return need_installed(function) ? call(function, args...) : py::object();
}

}  // namespace modtree
