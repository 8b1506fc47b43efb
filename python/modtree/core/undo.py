# SPDX-License-Identifier: BSD-3-Clause
"""Changes of a module in several steps, of which user code may stop any one: a registration hook, a
``__setattr__``, a property, an interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from modtree._C import ModuleBase
from modtree.core.foreign import is_native

_REGISTRIES = ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
_HOOK_TABLES = (
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
    """True if two sequences of pairs are the same objects in the same order."""
    return len(left) == len(right) and all(
        a is b and x is y for (a, x), (b, y) in zip(left, right, strict=True)
    )


class _Numbers:
    """The names of the entries of lists."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.isdigit()


NUMBERS: Container[Any] = _Numbers()


def _contents(table: Any) -> list[tuple[Any, Any]]:
    return list(table.items()) if isinstance(table, dict) else [(entry, None) for entry in table]


def _put_back(table: Any, before: list[tuple[Any, Any]], keys: Container[Any]) -> None:
    """Makes the entries of these keys what they were, each behind what was in front of it."""
    now = _contents(table)
    rest = [(key, value) for key, value in now if key not in keys]
    left = {key for key, _ in rest}
    behind: dict[Any, list[tuple[Any, Any]]] = {None: []}
    last = None  # of what is left; no key is None
    for key, value in before:
        if key in keys:
            behind.setdefault(last, []).append((key, value))
        elif key in left:
            last = key
    contents = behind[None]
    for key, value in rest:
        contents += [(key, value), *behind.get(key, ())]
    if isinstance(table, set):
        table.clear()
        table.update(key for key, _ in contents)
    elif not _same(now, contents):
        table.clear()
        table.update(contents)


class _Kept:
    """What a module has under names, wherever that is, with its place."""

    def __init__(
        self,
        module: Any,
        names: Container[Any],
        is_hook: Callable[[Any], bool] | None,
        tables: tuple[Any, ...],
    ) -> None:
        self.module, self.names, self.is_hook = module, names, is_hook
        self.cls = type(module)
        state = _state_of(module)
        self.attributes = list(state.items())
        self.registries = self._tables(state, _REGISTRIES)
        self.hooks = self._tables(state, _HOOK_TABLES if is_hook else ())
        self.more = [(table, _contents(table)) for table in tables]

    @staticmethod
    def _tables(state: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        tables = ((name, state.get(name)) for name in names)
        return {name: _contents(t) if isinstance(t, dict | set) else [] for name, t in tables}

    def restore(self) -> None:
        if "__class__" in self.names and type(self.module) is not self.cls:
            plain_methods(self.module).__setattr__(self.module, "__class__", self.cls)
        self._restore_attributes()
        state = _state_of(self.module)
        for name, before in self.registries.items():
            if isinstance(table := state.get(name), dict | set):
                _put_back(table, before, self.names)
        # A hook may be in several tables, under one number.
        now = self._tables(state, _HOOK_TABLES if self.is_hook else ())
        both = [*self.hooks.values(), *now.values()]
        ours = {key for table in both for key, hook in table if self._is_ours(hook)}
        for name, before in self.hooks.items():
            if isinstance(table := state.get(name), dict):
                _put_back(table, before, ours)
        for table, before in self.more:
            _put_back(table, before, self.names)

    def _restore_attributes(self) -> None:
        """Looks at ``__dict__`` only where an attribute has changed."""

        def ours(items: Any) -> list[tuple[str, Any]]:
            return [(name, value) for name, value in items if name in self.names]

        if not _same(ours(_state_of(self.module).items()), ours(self.attributes)):
            attributes = plain_methods(self.module).__getattribute__(self.module, "__dict__")
            _put_back(attributes, self.attributes, self.names)

    def _is_ours(self, hook: Any) -> bool:
        # Load pre-hooks are wrapped.
        return self.is_hook is not None and self.is_hook(getattr(hook, "hook", hook))


@contextmanager
def undone_on_error(
    module: Any,
    *names: str,
    among: Container[Any] = (),
    is_hook: Callable[[Any], bool] | None = None,
    tables: tuple[Any, ...] = (),
) -> Iterator[None]:
    """When the block raises, what it does itself is undone: the module has under the names what it
    had before, in its attributes and registries, each at its place. What user code did there
    meanwhile, under other names, stays, as does what was done to values of tensors and to the
    objects in attributes.

    Args:
        module: The module that the block changes, without its children.
        *names: The names of all that the block sets or deletes; ``"__class__"`` for the class.
        among: More names.
        is_hook: True of the hooks that the block adds or removes.
        tables: Dicts in attributes of the module of which the block changes entries of these names.
    """
    kept = _Kept(module, _Either(frozenset(names), among), is_hook, tables)
    try:
        yield
    except BaseException:
        kept.restore()
        raise


class _Either:
    """What is in one of two containers."""

    def __init__(self, first: Container[Any], second: Container[Any]) -> None:
        self.first, self.second = first, second

    def __contains__(self, key: object) -> bool:
        return key in self.first or key in self.second


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


def step_undone_on_error(module: Any, *names: str) -> AbstractContextManager[None]:
    """:func:`undone_on_error` for one assignment or deletion of an attribute. Module's own do all
    of it or nothing, so that the rest of the module need not be looked at, however large it is.
    """
    cls = type(module)
    if (cls.__setattr__, cls.__delattr__) == _own:
        return nullcontext()
    return undone_on_error(module, *names)
