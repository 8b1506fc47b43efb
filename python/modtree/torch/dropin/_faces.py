# SPDX-License-Identifier: BSD-3-Clause
"""Python functions on the class for what CPython calls through native slots.

Instances do not come here: their class has the native slots. What comes here is
``super().__init__()`` and the like, and what reads the functions: ``inspect``, ``torch.jit.script``
(the source of ``__init__``), ``torch.compile`` (which traces torch's own function in their place).
Two methods that layers override and reach by ``super()`` for each entry of a checkpoint are here
for their speed, and two for the ``preserve_ties`` that torch's own do not have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree.core.module import Module

_native_init: Callable[..., None] = Module.__dict__["__init__"]
_native_getattr: Callable[[Any, str], Any] = _C.ModuleBase.__dict__["__getattr__"]
_native_setattr: Callable[[Any, str, Any], None] = _C._module_setattr
_native_delattr: Callable[[Any, str], None] = _C._module_delattr
_native_save: Callable[..., None] = _C.ModuleBase.__dict__["_save_to_state_dict"]
_native_load: Callable[..., None] = _C.ModuleBase.__dict__["_load_from_state_dict"]

#: Name of the method -> the native function that its face calls.
NATIVE: dict[str, Callable[..., Any]] = {
    "__init__": _native_init,
    "__getattr__": _native_getattr,
    "__setattr__": _native_setattr,
    "__delattr__": _native_delattr,
    "_save_to_state_dict": _native_save,
    "_load_from_state_dict": _native_load,
}


def init_face(self: Any, *args: Any, **kwargs: Any) -> None:
    """Initializes the internal state that the module and its script form share."""
    _native_init(self, *args, **kwargs)


def getattr_face(self: Any, name: str) -> Any:
    return _native_getattr(self, name)


def setattr_face(self: Any, name: str, value: Any) -> None:
    _native_setattr(self, name, value)


def delattr_face(self: Any, name: str) -> None:
    _native_delattr(self, name)


def save_face(self: Any, destination: Any, prefix: Any, keep_vars: Any) -> None:
    _native_save(self, destination, prefix, keep_vars)


def load_face(
    self: Any,
    state_dict: Any,
    prefix: Any,
    local_metadata: Any,
    strict: Any,
    missing_keys: Any,
    unexpected_keys: Any,
    error_msgs: Any,
) -> None:
    _native_load(
        self,
        state_dict,
        prefix,
        local_metadata,
        strict,
        missing_keys,
        unexpected_keys,
        error_msgs,
    )


#: Name of the method -> the function on the class.
FACES: dict[str, Callable[..., Any]] = {
    "__init__": init_face,
    "__getattr__": getattr_face,
    "__setattr__": setattr_face,
    "__delattr__": delattr_face,
    "_save_to_state_dict": save_face,
    "_load_from_state_dict": load_face,
}


class _KeepingTies:
    """What torch's function asks for ``_apply`` in the place of a module."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def _apply(self, fn: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
        return self.module._apply(_C.KeepTies(fn), *args, **kwargs)


#: Methods that take ``preserve_ties``.
WITH_TIES = ("to", "to_empty")


def with_ties(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch's function of one of these names, with that option."""

    @functools.wraps(function)
    def face(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "preserve_ties" not in kwargs:
            return function(self, *args, **kwargs)
        keeps = kwargs.pop("preserve_ties")
        return function(_KeepingTies(self) if keeps else self, *args, **kwargs)

    return face
