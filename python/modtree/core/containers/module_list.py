# SPDX-License-Identifier: BSD-3-Clause
"""ModuleList: modules in a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import SupportsIndex, TypeVar, overload

from modtree._C import as_tuple
from modtree.core.containers._numbered import (
    append_all,
    delete_numbered,
    free_key,
    insert_numbered,
    insert_position,
    position,
)
from modtree.core.module import Module

Self = TypeVar("Self", bound="ModuleList")


class ModuleList(Module):
    """A list of modules that the tree sees: parameters, ``to()``, ``state_dict`` all reach them.

    It only holds them, without a ``forward``. The children are named ``'0'``, ``'1'``, ...

    Args:
        modules: an iterable of modules.

    Example:
        >>> layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        >>> layers
        ModuleList(
          (0-2): 3 x Linear(in_features=8, out_features=8, bias=True)
        )
        >>> x = mt.ones(2, 8)
        >>> for layer in layers:
        ...     x = layer(x)
    """

    __module__ = "modtree.nn"  # the name in pickles and in repr

    # None entries are rare: no check at every use.
    _modules: dict[str, Module]  # type: ignore[assignment]

    def __init__(self, modules: Iterable[Module | None] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self += modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def _get_abs_string_index(self, idx: SupportsIndex) -> str:
        """The name of the entry at ``idx``."""
        return str(position(self, idx))

    @overload
    def __getitem__(self: Self, idx: slice) -> Self: ...

    @overload
    def __getitem__(self, idx: SupportsIndex) -> Module: ...

    def __getitem__(self: Self, idx: slice | SupportsIndex) -> Self | Module:
        """The module named by that position, or a list of a slice, numbered anew."""
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        modules = self._modules
        if type(self) is ModuleList and type(idx) is int and 0 <= idx < len(modules):
            return modules[str(idx)]  # the usual case, without the calls
        return modules[self._get_abs_string_index(idx)]

    def __setitem__(self, idx: SupportsIndex, module: Module | None) -> None:
        setattr(self, self._get_abs_string_index(idx), module)

    def __delitem__(self, idx: slice | SupportsIndex) -> None:
        """Deletes by position; the other entries are numbered anew.

        Raises:
            KeyError: an entry that stays has a name that is not a number: it would be lost.
        """
        if isinstance(idx, slice):
            doomed = [str(i) for i in range(len(self))[idx]]
        else:
            doomed = [self._get_abs_string_index(idx)]
        delete_numbered(self, doomed)

    def append(self: Self, module: Module | None) -> Self:
        """Adds ``module`` at the end and returns self."""
        self.add_module(free_key(self, len(self)), module)
        return self

    def extend(self: Self, modules: Iterable[Module | None]) -> Self:
        """Appends the modules (all of them, or none when one is refused) and returns self."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, "
                f"but got {type(modules).__name__}"
            )
        entries = as_tuple(modules)  # which may append to this list itself
        append_all(self, entries, len(self))
        return self

    def __iadd__(  # type: ignore[misc, unused-ignore]  # stubtest's order of files finds one
        self: Self, modules: Iterable[Module | None]
    ) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        """A new plain ModuleList of the modules of both."""
        return ModuleList(chain(self, other))

    def insert(self, index: SupportsIndex, module: Module | None) -> None:
        """Inserts ``module`` in front of position ``index``; negatives count from the end.

        Raises:
            IndexError: ``index`` is beyond either end.
            TypeError: ``module`` is neither a Module nor None.
            KeyError: the list holds a child that is not named by its position.
        """
        at = insert_position(self, index)
        if module is not None and not isinstance(module, Module):
            raise TypeError(
                f"cannot insert into {self._get_name()}: {type(module).__name__} is not a Module "
                f"subclass"
            )
        insert_numbered(self, at, module)

    @overload
    def pop(self: Self, key: slice) -> Self: ...

    @overload
    def pop(self, key: SupportsIndex) -> Module: ...

    def pop(self: Self, key: slice | SupportsIndex) -> Self | Module:
        """Removes and returns the module at a position, or a slice of them."""
        taken = self[key]
        del self[key]
        return taken

    def __repr__(self) -> str:
        """One line per run of neighbours that look alike."""
        lines = []
        first = 0
        for text, run in groupby(map(repr, self)):
            count = sum(1 for _ in run)
            label = f"({first}): " if count == 1 else f"({first}-{first + count - 1}): {count} x "
            lines.append(label + text)
            first += count
        if not lines:
            return f"{self._get_name()}()"
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{self._get_name()}(\n  {body}\n)"
