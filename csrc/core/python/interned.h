// SPDX-License-Identifier: BSD-3-Clause
// Every attribute name that native code looks up, interned once and kept for the life of the
// process.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

// X(C++ member, Python name)
#define MODTREE_NAMES(X)                                                                           \
  X(training, "training")                                                                          \
  X(parameters_, "_parameters")                                                                    \
  X(buffers_, "_buffers")                                                                          \
  X(non_persistent_buffers_set, "_non_persistent_buffers_set")                                     \
  X(backward_pre_hooks, "_backward_pre_hooks")                                                     \
  X(backward_hooks, "_backward_hooks")                                                             \
  X(is_full_backward_hook, "_is_full_backward_hook")                                               \
  X(forward_hooks, "_forward_hooks")                                                               \
  X(forward_hooks_with_kwargs, "_forward_hooks_with_kwargs")                                       \
  X(forward_hooks_always_called, "_forward_hooks_always_called")                                   \
  X(forward_pre_hooks, "_forward_pre_hooks")                                                       \
  X(forward_pre_hooks_with_kwargs, "_forward_pre_hooks_with_kwargs")                               \
  X(state_dict_hooks, "_state_dict_hooks")                                                         \
  X(state_dict_pre_hooks, "_state_dict_pre_hooks")                                                 \
  X(load_state_dict_pre_hooks, "_load_state_dict_pre_hooks")                                       \
  X(load_state_dict_post_hooks, "_load_state_dict_post_hooks")                                     \
  X(modules_, "_modules")                                                                          \
  X(add_module, "add_module")                                                                      \
  X(apply, "apply")                                                                                \
  X(apply_, "_apply")                                                                              \
  X(assign_to_params_buffers, "assign_to_params_buffers")                                          \
  X(buffers, "buffers")                                                                            \
  X(call, "__call__")                                                                              \
  X(call_impl, "_call_impl")                                                                       \
  X(call_super_init, "call_super_init")                                                            \
  X(children, "children")                                                                          \
  X(class_, "__class__")                                                                           \
  X(compiled_call_impl, "_compiled_call_impl")                                                     \
  X(copy, "__copy__")                                                                              \
  X(clone, "clone")                                                                                \
  X(deepcopy, "__deepcopy__")                                                                      \
  X(deepcopy_dispatch, "_deepcopy_dispatch")                                                       \
  X(delattr, "__delattr__")                                                                        \
  X(destination, "destination")                                                                    \
  X(detach, "detach")                                                                              \
  X(dict, "__dict__")                                                                              \
  X(dispatch_table, "dispatch_table")                                                              \
  X(dtype, "dtype")                                                                                \
  X(eq, "__eq__")                                                                                  \
  X(eval, "eval")                                                                                  \
  X(extra_repr, "extra_repr")                                                                      \
  X(extra_state, "_extra_state")                                                                   \
  X(forward, "forward")                                                                            \
  X(from_public_api, "_from_public_api")                                                           \
  X(get_extra_state, "get_extra_state")                                                            \
  X(get_name, "_get_name")                                                                         \
  X(getattr, "__getattr__")                                                                        \
  X(getattribute, "__getattribute__")                                                              \
  X(getnewargs, "__getnewargs__")                                                                  \
  X(getnewargs_ex, "__getnewargs_ex__")                                                            \
  X(getstate, "__getstate__")                                                                      \
  X(hash, "__hash__")                                                                              \
  X(init, "__init__")                                                                              \
  X(is_replica, "_is_replica")                                                                     \
  X(keep_vars, "keep_vars")                                                                        \
  X(load_from_state_dict, "_load_from_state_dict")                                                 \
  X(load_state_dict, "load_state_dict")                                                            \
  X(metadata, "_metadata")                                                                         \
  X(metadata_record, "_metadata_record")                                                           \
  X(module, "__module__")                                                                          \
  X(modules, "modules")                                                                            \
  X(named_buffers, "named_buffers")                                                                \
  X(named_children, "named_children")                                                              \
  X(named_members, "_named_members")                                                               \
  X(named_modules, "named_modules")                                                                \
  X(named_parameters, "named_parameters")                                                          \
  X(notes, "__notes__")                                                                            \
  X(parameters, "parameters")                                                                      \
  X(persistent, "persistent")                                                                      \
  X(prefix, "prefix")                                                                              \
  X(reduce, "__reduce__")                                                                          \
  X(reduce_ex, "__reduce_ex__")                                                                    \
  X(register_buffer, "register_buffer")                                                            \
  X(register_parameter, "register_parameter")                                                      \
  X(repr, "__repr__")                                                                              \
  X(requires_grad_, "requires_grad_")                                                              \
  X(save_to_state_dict, "_save_to_state_dict")                                                     \
  X(set_extra_state, "set_extra_state")                                                            \
  X(setattr, "__setattr__")                                                                        \
  X(setstate, "__setstate__")                                                                      \
  X(shape, "shape")                                                                                \
  X(size, "size")                                                                                  \
  X(slow_forward, "_slow_forward")                                                                 \
  X(state_dict, "state_dict")                                                                      \
  X(to, "to")                                                                                      \
  X(torch_function, "__torch_function__")                                                          \
  X(train, "train")                                                                                \
  X(version, "version")                                                                            \
  X(version_, "_version")                                                                          \
  X(copy_in_place, "copy_")                                                                        \
  X(data, "data")                                                                                  \
  X(out, "out")                                                                                    \
  X(grad, "grad")                                                                                  \
  X(grad_fn, "grad_fn")                                                                            \
  X(is_buffer, "_is_buffer")                                                                       \
  X(is_complex, "is_complex")                                                                      \
  X(is_floating_point, "is_floating_point")                                                        \
  X(is_meta, "is_meta")                                                                            \
  X(is_param, "_is_param")                                                                         \
  X(requires_grad, "requires_grad")                                                                \
  X(zero_grad, "zero_grad")

struct Names {
#define MODTREE_DECLARE(member, text) PyObject *member = nullptr;
  MODTREE_NAMES(MODTREE_DECLARE)
#undef MODTREE_DECLARE
  PyObject *empty = nullptr;  // ''
  PyObject *dot = nullptr;    // '.'
};

extern Names names;

void intern_names();

}  // namespace modtree
