# SPDX-License-Identifier: BSD-3-Clause
"""What is on modules for a while (hooks, another ``forward``, a frozen mode), and nested values."""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from types import CodeType, MethodType
from typing import Any

from modtree.core.families import family_of
from modtree.core.undo import plain_methods
from modtree.editing.walking import refuse_scripted

_TABLES = ("_forward_hooks", "_forward_pre_hooks")
_REDUCE = "__reduce_ex__"
_ABSENT: Any = object()
_COMPILED = "whose calls do not run hooks: observe"


# -- copies and pickles without it -----------------------------------------------------------------


def _reduce(module: Any, protocol: Any) -> Any:
    """The ``__reduce_ex__`` of a module on which something is: copies and pickles are made without
    it. A deep copy stays frozen.
    """
    caller = sys._getframe(1).f_code
    cls: Any = type(module)
    made = cls.__reduce_ex__(module, protocol)
    return tuple(_cleaned(part, caller) for part in made) if isinstance(made, tuple) else made


def _cleaned(part: Any, caller: CodeType) -> Any:
    if isinstance(part, tuple):
        return tuple(_cleaned(inner, caller) for inner in part)
    if not isinstance(part, dict) or not _is(part.get(_REDUCE), _reduce):
        return part
    state = copy.copy(part)
    while isinstance(state.get("forward"), _Instead):
        before = state.pop("forward").before
        if before is not _ABSENT:
            state["forward"] = before
    for name in _TABLES if caller is not _code(copy.copy) else ():  # which shares the tables
        ours = [key for key, hook in state.get(name, {}).items() if isinstance(hook, _Hook)]
        for table in (name, f"{name}_with_kwargs"):
            if ours and table in state:
                state[table] = copy.copy(state[table])
                for key in ours:
                    state[table].pop(key, None)
    if not _is(state.get("train"), _stay):
        del state[_REDUCE]
    elif caller is not _code(copy.deepcopy):
        del state[_REDUCE], state["train"]
    return state


def _code(function: Any) -> Any:
    return getattr(function, "__code__", None)


def _is(method: Any, function: Callable[..., Any]) -> bool:
    return getattr(method, "__func__", None) is function


def _set(module: Any, name: str, value: Any) -> None:
    """Sets or, without a value, deletes an attribute past what the module's class does there."""
    methods = plain_methods(module)
    if value is not _ABSENT:
        methods.__setattr__(module, name, value)
    elif name in methods.__getattribute__(module, "__dict__"):
        methods.__delattr__(module, name)


def _own(module: Any, name: str) -> Any:
    return plain_methods(module).__getattribute__(module, "__dict__").get(name, _ABSENT)


def _mark(module: Any) -> None:
    """Has copies and pickles of a module made without what is on it."""
    if not _is(getattr(module, _REDUCE), _reduce):
        _set(module, _REDUCE, MethodType(_reduce, module))


def _unmark(module: Any) -> None:
    """Takes the mark off, if nothing is left on the module."""
    hooks = [hook for name in _TABLES for hook in getattr(module, name).values()]
    if (
        not any(isinstance(hook, _Hook) for hook in hooks)
        and not isinstance(module.forward, _Instead)
        and not is_frozen(module)
        and _is(getattr(module, _REDUCE), _reduce)
    ):
        _set(module, _REDUCE, _ABSENT)


# -- what is on modules ----------------------------------------------------------------------------


def _stay(module: Any, mode: bool = True) -> Any:
    """What ``train`` of a frozen module is: the mode stays."""
    return module


def is_frozen(module: Any) -> bool:
    """True if later calls of ``train`` leave the mode of a module."""
    return _is(module.train, _stay)


def freeze(module: Any) -> Any:
    """Lets later calls of ``train`` leave the mode of a module. Returns what thaws it."""
    before = _own(module, "train")
    _set(module, "train", MethodType(_stay, module))
    _mark(module)
    return before


def thaw(module: Any, before: Any = _ABSENT) -> None:
    """Lets later calls of ``train`` change the mode again."""
    _set(module, "train", before)
    _unmark(module)


class _Unscripted:
    """Says what is wrong if torch.jit.script asks for what it needs of a function."""

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__globals__"):
            name += ": torch.jit.script takes no module on which capture() or intervene() is open"
        raise AttributeError(name)


class _Hook(_Unscripted):
    """A function as a hook. In a copy that a class makes of its hooks itself, it does nothing."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        function = self._function
        return None if function is None else function(*args)

    def close(self) -> None:
        """For calls in other threads that have read the table of hooks already."""
        self._function = None

    def __reduce__(self) -> Any:
        return _Hook, ()


def attach(
    stack: ExitStack,
    path: str,
    module: Any,
    function: Callable[..., Any],
    *,
    before: bool = False,
) -> None:
    """Calls a function with each call of a module until the stack is left.

    Args:
        stack: What takes the hook off again.
        path: That of the module, for errors.
        module: The module.
        function: Called with module, args and kwargs, and, unless it is ``before``, the output.
        before: Whether it is called before ``forward``.
    """
    refuse_scripted(path, module, _COMPILED)
    hook = _Hook(function)
    register = module.register_forward_pre_hook if before else module.register_forward_hook
    stack.callback(_unmark, module)
    stack.callback(register(hook, with_kwargs=True).remove)
    stack.callback(hook.close)
    _mark(module)


class _Instead(_Unscripted):
    """What is called in place of ``forward``."""

    def __init__(self, module: Any, before: Any, function: Callable[..., Any]) -> None:
        self.module, self.before, self.function = module, before, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> Any:  # of a class that copies its attributes itself
        if self.before is _ABSENT:
            return getattr, (self.module, "forward")
        return functools.partial, (self.before,)


def stand_in(stack: ExitStack, path: str, module: Any, function: Callable[..., Any]) -> None:
    """Has a module call a function in place of its ``forward`` until the stack is left."""
    refuse_scripted(path, module, _COMPILED)
    ours = _Instead(module, _own(module, "forward"), function)
    stack.callback(_unmark, module)
    stack.callback(_step_down, module, ours)
    _set(module, "forward", ours)
    _mark(module)


def _step_down(module: Any, ours: _Instead) -> None:
    """Takes a stand-in off, which later ones may have for what was there before them."""
    at = _own(module, "forward")
    if at is ours:
        _set(module, "forward", ours.before)
    while isinstance(at, _Instead):
        if at.before is ours:
            at.before = ours.before
        at = at.before


class _Eager:
    """That no compiled code runs, as long as a block is open; blocks need not nest."""

    def __init__(self) -> None:
        # Held while torch makes objects: a finalizer that runs then may open or close a block.
        self._lock = threading.RLock()
        self._number = 0
        self._stance = ExitStack()

    def enter(self, set_stance: Any) -> None:
        with self._lock:
            if not self._number:
                self._stance.enter_context(set_stance("force_eager"))
            self._number += 1

    def leave(self) -> None:
        with self._lock:
            self._number -= 1
            if not self._number:
                self._stance.close()


_eager = _Eager()


def run_eagerly(stack: ExitStack) -> None:
    """Lets code that torch.compile made wait until the stack is left: it was compiled without the
    hooks, and does not look for new ones.
    """
    compiler = sys.modules.get("torch.compiler")
    if compiler is not None and "torch._dynamo" in sys.modules and hasattr(compiler, "set_stance"):
        _eager.enter(compiler.set_stance)
        stack.callback(_eager.leave)


# -- nested values ---------------------------------------------------------------------------------


def cloned(tensor: Any) -> Any:
    """A copy of a tensor that may be changed in place; gradients flow through it."""
    family = family_of(tensor)
    if family is not None and family.immutable:
        return tensor
    return tensor.clone() if hasattr(tensor, "clone") else copy.deepcopy(tensor)


def map_tensors(
    value: Any, function: Callable[[Any], Any], other: Callable[[Any], Any] | None = None
) -> Any:
    """A nested value with its tensors replaced: lists, deques, tuples, mappings and dataclasses are
    made anew, all else stays.

    Args:
        value: The nested value.
        function: Makes what is put in the place of a tensor.
        other: The same for all else that is not a container.
    """
    if family_of(value) is not None:
        return function(value)
    made: Any
    if isinstance(value, tuple):
        parts = [map_tensors(part, function, other) for part in value]
        if hasattr(value, "n_fields"):  # a struct sequence, such as those of torch.return_types
            return type(value)(parts)
        return tuple.__new__(type(value), parts)
    if isinstance(value, (list, deque)):
        made = copy.copy(value)
        made.clear()
        made.extend(map_tensors(part, function, other) for part in value)
        return made
    if isinstance(value, Mapping):
        made = copy.copy(value) if isinstance(value, MutableMapping) else dict(value)
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
