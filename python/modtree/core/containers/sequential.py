# SPDX-License-Identifier: BSD-3-Clause
"""Sequential: modules called one after the other."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, SupportsIndex, TypeVar, overload

from modtree._C import _append_children
from modtree.core.containers._numbered import (
    append_all,
    delete_numbered,
    free_key,
    insert_numbered,
    insert_position,
    names,
    position,
)
from modtree.core.module import Module
from modtree.core.undo import NUMBERS, undone_on_error

T = TypeVar("T")
Self = TypeVar("Self", bound="Sequential")


class Sequential(Module):
    """Feeds its input through its children in order: the output of one is the input of the next.

    The children are named ``'0'``, ``'1'``, ... or, when built from one ``OrderedDict``, by its
    keys. Every child counts, also one set as an ordinary attribute.

    Args:
        *args: the modules, or one ``OrderedDict`` of names and modules. A None is kept, but cannot
            be called.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> net[1:]
        Sequential(
          (1): ReLU()
          (2): Linear(in_features=8, out_features=2, bias=True)
        )
        >>> from collections import OrderedDict
        >>> named = nn.Sequential(OrderedDict(hidden=nn.Linear(4, 8), act=nn.ReLU()))
        >>> named.act
        ReLU()
    """

    __module__ = "modtree.nn"  # the name in pickles and in repr

    # None entries are rare: no check at every use.
    _modules: dict[str, Module]  # type: ignore[assignment]

    @overload
    def __init__(self, *args: Module | None) -> None: ...

    @overload
    def __init__(self, arg: OrderedDict[str, Module], /) -> None: ...

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            done = _append_children(self, args, 0)
            # Those from the first one on for which a class, an instance or a hook has a say.
            for i, module in enumerate(args[done:], done):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        """Returns ``input`` after all modules; with no modules, ``input`` itself."""
        for module in self:
            input = module(input)
        return input

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def _get_item_by_idx(self, iterator: Iterable[T], idx: SupportsIndex) -> T:
        """The item of ``iterator``, as long as this container, that ``idx`` selects."""
        return next(islice(iterator, position(self, idx), None))

    @overload
    def __getitem__(self: Self, idx: slice) -> Self: ...

    @overload
    def __getitem__(self, idx: SupportsIndex) -> Module: ...

    def __getitem__(self: Self, idx: slice | SupportsIndex) -> Self | Module:
        """The module at a position, or a Sequential of a slice in which the names are kept."""
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._get_item_by_idx(self._modules.values(), idx)

    def __setitem__(self, idx: SupportsIndex, module: Module | None) -> None:
        setattr(self, self._get_item_by_idx(self._modules, idx), module)

    def __delitem__(self, idx: slice | SupportsIndex) -> None:
        """Deletes by position; the other entries are numbered anew.

        Raises:
            KeyError: an entry that stays has a name that is not a number: it would be lost.
        """
        if isinstance(idx, slice):
            delete_numbered(self, list(self._modules)[idx])
        else:
            delete_numbered(self, [self._get_item_by_idx(self._modules, idx)])

    def append(self: Self, module: Module | None) -> Self:
        """Adds ``module`` at the end, named by its position, and returns self.

        Raises:
            KeyError: that name is taken (possible when the names were given).
        """
        self.add_module(free_key(self, len(self)), module)
        return self

    def extend(self: Self, sequential: Iterable[Module | None]) -> Self:
        """Appends each module (all of them, or none when one is refused) and returns self."""
        modules = list(sequential)
        with undone_on_error(self, among=NUMBERS):
            for module in modules:
                self.append(module)
        return self

    def insert(self: Self, index: SupportsIndex, module: Module) -> Self:
        """Inserts ``module`` in front of position ``index`` and returns self; negatives count from
        the end.
        """
        if not isinstance(module, Module):
            raise AssertionError(
                f"module should be of type: {Module.__name__}, got {type(module).__name__}"
            )
        insert_numbered(self, insert_position(self, index), module)
        return self

    @overload
    def pop(self: Self, key: slice) -> Self: ...

    @overload
    def pop(self, key: SupportsIndex) -> Module: ...

    def pop(self: Self, key: slice | SupportsIndex) -> Self | Module:
        """Removes and returns the module at a position, or a slice of them."""
        taken = self[key]
        del self[key]
        return taken

    def __add__(self, other: Sequential) -> Sequential:
        """A new plain Sequential of the modules of both, numbered from 0."""
        _check_operand(other)
        return Sequential(*self, *other)

    def __iadd__(self: Self, other: Sequential) -> Self:
        _check_operand(other)
        entries = tuple(other)
        append_all(self, entries, len(self))
        return self

    def __mul__(self, other: int) -> Sequential:
        """A new plain Sequential in which the same modules come ``other`` times."""
        _check_factor(self, other)
        return Sequential(*(list(self) * other))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self: Self, other: int) -> Self:
        _check_factor(self, other)
        if other > 1:
            # Reads by number, so that only what was numbered is repeated.
            length = len(self)
            numbered = [self._numbered(i) for i in range(length)]
            with undone_on_error(self, among=NUMBERS):
                for at, module in enumerate(numbered * (other - 1), length):
                    self.add_module(free_key(self, at), module)
        return self

    def _numbered(self, i: int) -> Module:
        try:
            return self._modules[str(i)]
        except KeyError:
            raise KeyError(
                f"cannot repeat this {self._get_name()} in place: it has no entry named "
                f"{str(i)!r} (entries: {names(self._modules)}). "
                f"Use sequential * n, which numbers anew"
            ) from None


def _check_operand(other: object) -> None:
    if not isinstance(other, Sequential):
        raise ValueError(
            "add operator supports only objects of Sequential class, "
            f"but {type(other)} is given. Use extend for other iterables."
        )


def _check_factor(sequential: Sequential, factor: object) -> None:
    if not isinstance(factor, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(sequential)} and {type(factor)}")
    if operator.index(factor) <= 0:
        raise ValueError(f"Non-positive multiplication factor {factor} for {type(sequential)}")
