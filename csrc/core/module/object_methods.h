// SPDX-License-Identifier: BSD-3-Clause
// object.__setattr__, __delattr__, __getattribute__ and __new__ called on modules, which CPython
// refuses for native classes.
#pragma once

#include <pybind11/pytypes.h>

namespace modtree {

namespace py = pybind11;

// Makes them work as on torch's Module: past the registries, into the instance dict. Does nothing
// where CPython's records are not what they were when this was written; calls of them raise
// CPython's TypeError then. Called once, when the module type is made.
void init_object_methods();

// Puts that in place or takes it back; says whether it is in place afterwards. For tests.
bool exchange_object_methods(bool on);

// True while object.__new__(cls) makes modules.
bool object_new_takes_modules();

// Takes the slot wrappers out of the native base, once Module has them: past Module come object's
// then, as super(nn.Module, module).__setattr__ expects.
void leave_slots_to_object();

}  // namespace modtree
