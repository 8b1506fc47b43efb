# SPDX-License-Identifier: BSD-3-Clause
"""The base class and the hooks of all modules, under torch's path."""

from __future__ import annotations

import sys
from typing import Any

from modtree import _imports
from modtree.core import module as _home
from modtree.core.module import (
    Module,
    _forward_unimplemented,
    _has_any_global_hook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from modtree.core.state_dict import _IncompatibleKeys
from modtree.nn.modules._indent import _addindent

__all__ = [
    "Module",
    "_IncompatibleKeys",
    "_addindent",
    "_forward_unimplemented",
    "_has_any_global_hook",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]


def __getattr__(name: str) -> Any:
    # The tables of global hooks; one of these names is bound anew when a hook is registered.
    if name.startswith("_global_"):
        return getattr(_home, name)
    raise _imports.absent(sys.modules[__name__], name, sys._getframe(1))
