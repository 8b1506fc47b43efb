# SPDX-License-Identifier: BSD-3-Clause
"""Hooks that are on modules for the time of a ``with`` block, and nested values of tensors."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from modtree.core.families import family_of
from modtree.editing.walking import describe, is_scripted

__all__ = ["Hook", "attach", "map_tensors", "refuse_scripted", "run_eagerly"]

_TABLES = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


def _drop_copied(module: Any, *rest: Any) -> None:
    """What a hook is in a copy of its module: it takes itself out at the first call."""
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        for key, hook in tuple(getattr(module, name).items()):
            if hook is _drop_copied:
                for table in _TABLES:
                    getattr(module, table).pop(key, None)


def _copied_hook() -> Callable[..., None]:
    return _drop_copied


class Hook:
    """A function as a hook, which neither copies nor pickles of the module run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.is_open = True

    def __call__(self, *args: Any) -> Any:
        return self._function(*args) if self.is_open else None

    def close(self) -> None:
        """For calls in other threads that have read the table of hooks already."""
        self.is_open = False

    def __deepcopy__(self, memo: Any) -> Any:
        return _drop_copied

    def __reduce__(self) -> Any:
        return _copied_hook, ()


def attach(
    stack: ExitStack, module: Any, function: Callable[..., Any], *, before: bool = False
) -> None:
    """Calls a function with each call of a module until the stack is left.

    Args:
        stack: What takes the hook off again.
        module: The module.
        function: Called with module, args and kwargs, and, unless it is ``before``, the output.
        before: Whether it is called before ``forward``.
    """
    hook = Hook(function)
    register = module.register_forward_pre_hook if before else module.register_forward_hook
    stack.callback(register(hook, with_kwargs=True).remove)
    stack.callback(hook.close)


def refuse_scripted(path: str, module: Any) -> None:
    """Raises TypeError for a scripted module: its calls do not pass through Python."""
    if is_scripted(module):
        raise TypeError(
            f"{describe(path)} is a scripted module ({type(module).__name__}), whose calls do not "
            f"run hooks: observe the model before torch.jit.script or torch.jit.trace"
        )


def run_eagerly(stack: ExitStack) -> None:
    """Lets code that torch.compile made wait until the stack is left: it was compiled without the
    hooks, and does not look for new ones.
    """
    compiler = sys.modules.get("torch.compiler")
    if compiler is not None and "torch._dynamo" in sys.modules and hasattr(compiler, "set_stance"):
        stack.enter_context(compiler.set_stance("force_eager"))


def map_tensors(
    value: Any, function: Callable[[Any], Any], other: Callable[[Any], Any] | None = None
) -> Any:
    """A nested value with its tensors replaced: lists, tuples, mappings and dataclasses are made
    anew, all else stays.

    Args:
        value: The nested value.
        function: Makes what is put in the place of a tensor.
        other: The same for all else that is no container.
    """
    if family_of(value) is not None:
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(part, function, other) for part in value))
    if type(value) in (list, tuple):
        return type(value)(map_tensors(part, function, other) for part in value)
    if isinstance(value, Mapping):
        made: Any = copy.copy(value)
        for key, part in value.items():
            made[key] = map_tensors(part, function, other)
        return made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for part in dataclasses.fields(value):
            held = getattr(value, part.name, None)
            object.__setattr__(made, part.name, map_tensors(held, function, other))
        return made
    return value if other is None else other(value)
