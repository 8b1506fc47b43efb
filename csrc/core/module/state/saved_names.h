// SPDX-License-Identifier: BSD-3-Clause
// Which names a module has in its state dict.
#pragma once

#include "module/class_info.h"
#include "module/object.h"

namespace modtree {

// 1 if state dicts leave out the buffer of this name, -1 on error. May run Python code.
int is_in_non_persistent_set(ModuleObject *module, PyObject *name);
inline int is_non_persistent(ModuleObject *module, PyObject *name) {
  const ModuleState &state = module->state;
  const bool has_set = state.non_persistent || state.exposed || !state.initialized;
  return has_set ? is_in_non_persistent_set(module, name) : 0;
}

// A name may be in both registries when they were written directly: in a state dict the buffer's
// value wins, at the parameter's place. *buffer stays empty when there is none, or none that is
// saved. -1 on error.
int find_saved_buffer(ModuleObject *module, PyObject *name, py::object *buffer);

// 1 if there is a parameter of this name that is not None, -1 on error.
int has_parameter(ModuleObject *module, PyObject *name);

// 1 if the module loads an entry of this name, -1 on error.
int has_entry(ModuleObject *module, PyObject *name);

// True if the class of a module has its own set_extra_state.
inline bool has_extra_state_setter(PyObject *module) {
  return class_info(Py_TYPE(module)).overrides(Virtual::set_extra_state);
}

}  // namespace modtree
