# SPDX-License-Identifier: BSD-3-Clause
"""Changes of a module in several steps, of which user code may stop any one: a registration hook, a
``__setattr__``, a property, an interrupt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from modtree._C import ModuleBase
from modtree.core.foreign import is_native

__all__ = ["modes_kept_on_error", "plain_methods", "step_undone_on_error", "undone_on_error"]

_TABLES = (
    "_parameters",
    "_buffers",
    "_non_persistent_buffers_set",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_modules",
)
# Not part of a module's state.
_COMPILED = "_compiled_call_impl"


def plain_methods(module: Any) -> Any:
    """The class whose ``__setattr__`` and the like work on a module past those of its own class."""
    return ModuleBase if is_native(module) else object


def _state_of(module: Any) -> dict[str, Any]:
    """What ``__dict__`` shows. Looking at that would take the module out of its compact form."""
    if is_native(module):
        return ModuleBase.__getstate__(module)
    return {name: value for name, value in vars(module).items() if name != _COMPILED}


def _same(left: Any, right: Any) -> bool:
    """Are two sequences of pairs the same objects in the same order?"""
    return len(left) == len(right) and all(
        a is b and x is y for (a, x), (b, y) in zip(left, right, strict=True)
    )


class _Kept:
    """A module as it is: its class, attributes and tables, each in order."""

    def __init__(self, module: Any, more: tuple[Any, ...]) -> None:
        self.module = module
        self.cls = type(module)
        self.state = _state_of(module)
        own = [self.state[name] for name in _TABLES if name in self.state]
        self.tables = [
            (table, list(table.items() if isinstance(table, dict) else table))
            for table in (*own, *more)
            if isinstance(table, (dict, set))
        ]

    def restore(self) -> None:
        if type(self.module) is not self.cls:
            plain_methods(self.module).__setattr__(self.module, "__class__", self.cls)
        for table, contents in self.tables:
            _refill(table, contents)
        if not _same(list(_state_of(self.module).items()), list(self.state.items())):
            attributes = plain_methods(self.module).__getattribute__(self.module, "__dict__")
            compiled = {k: v for k, v in attributes.items() if k == _COMPILED}
            attributes.clear()
            attributes.update(self.state | compiled)


def _refill(table: Any, contents: list[Any]) -> None:
    """Gives a table its contents back, in their order."""
    if isinstance(table, set) or not _same(table.items(), contents):
        table.clear()
        table.update(contents)


@contextmanager
def undone_on_error(*modules: Any, tables: tuple[Any, ...] = ()) -> Iterator[None]:
    """When the block raises, the modules are what they were before it: class, registries, hooks and
    attributes, in their order. What was done to values of tensors and to the objects in attributes
    stays.

    Args:
        *modules: The modules that the block changes itself, without their children.
        tables: Dicts and sets in their attributes that get their contents back too.
    """
    kept = [_Kept(module, tables) for module in modules]
    try:
        yield
    except BaseException:
        for each in reversed(kept):
            each.restore()
        raise


@contextmanager
def modes_kept_on_error(*modules: Any) -> Iterator[None]:
    """When the block raises, each of the modules is in the mode again in which it was."""
    modes = [(each, each.training) for each in modules]
    try:
        yield
    except BaseException:
        for each, training in modes:
            plain_methods(each).__setattr__(each, "training", training)
        raise


_own = (ModuleBase.__setattr__, ModuleBase.__delattr__)


def step_undone_on_error(module: Any, tables: tuple[Any, ...] = ()) -> AbstractContextManager[None]:
    """:func:`undone_on_error` for one assignment or deletion of an attribute. Module's own do all
    of it or nothing, so that the rest of the module need not be kept, however large it is.
    """
    cls = type(module)
    if (cls.__setattr__, cls.__delattr__) == _own:
        return nullcontext()
    return undone_on_error(module, tables=tables)
