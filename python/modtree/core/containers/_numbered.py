# SPDX-License-Identifier: BSD-3-Clause
"""What Sequential and ModuleList share: children whose names are their positions '0', '1', ..."""

from __future__ import annotations

import operator
from itertools import islice
from sys import intern
from typing import TYPE_CHECKING, Any, SupportsIndex

from modtree._C import _append_children
from modtree.core.undo import NUMBERS, undone_on_error

if TYPE_CHECKING:
    from modtree.core.module import Module


def position(container: Any, index: SupportsIndex) -> int:
    """``index`` as a position from the front.

    Raises:
        TypeError: it is not an integer.
        IndexError: it is out of range.
    """
    index = operator.index(index)
    length = len(container)
    if not -length <= index < length:
        raise IndexError(
            f"index {index} is out of range for {container._get_name()} of length {length}"
        )
    return index if index >= 0 else index + length


def insert_position(container: Any, index: SupportsIndex) -> int:
    """The position in front of which an insertion at ``index`` goes; the length means the end."""
    length = len(container)
    index = operator.index(index)
    if not -length <= index <= length:
        raise IndexError(
            f"Index out of range: {index} (insertion into {container._get_name()} of length "
            f"{length} takes {-length} to {length})"
        )
    return index if index >= 0 else index + length


def names(modules: dict[str, Any], at_most: int = 8) -> str:
    """The names of the entries for a message; of a long container only the first ones."""
    shown = ", ".join(map(repr, islice(modules, at_most)))
    return shown if len(modules) <= at_most else f"{shown}, ... ({len(modules)} in all)"


def is_numbered(modules: dict[str, Any]) -> bool:
    """True if the names are '0', '1', ... in order."""
    return all(key == str(i) for i, key in enumerate(modules))


def renumber(modules: dict[str, Any]) -> None:
    """Renames the entries of a registry to '0', '1', ... in place, keeping their order."""
    entries = list(modules.values())
    modules.clear()
    for i, entry in enumerate(entries):
        modules[intern(str(i))] = entry


def delete_numbered(container: Module, doomed: list[str]) -> None:
    """Deletes the children of these names and numbers the others anew.

    Raises:
        KeyError: an entry that stays has a name of its own, which would be lost. Nothing has
            changed.
    """
    going = set(doomed)
    named = next(
        (key for key in container._modules if not key.isdigit() and key not in going), None
    )
    if named is not None:
        if not doomed:
            return
        raise KeyError(
            f"cannot delete by position from this {container._get_name()}: it would rename entry "
            f"{named!r} (and every other) to its position. Delete by name: "
            f"delattr(container, {doomed[0]!r}), which keeps the other names"
        )
    with undone_on_error(container, *doomed, among=NUMBERS):
        for key in doomed:
            delattr(container, key)
        renumber(container._modules)


def insert_numbered(container: Module, index: int, module: Module | None) -> None:
    """Puts ``module`` in front of position ``index`` and shifts the numbers of those behind it.

    Raises:
        KeyError: the names are not '0', '1', ... in order. Nothing has changed.
    """
    modules = container._modules
    if index == len(modules):
        modules[free_key(container, index)] = module
        return
    if not is_numbered(modules):
        raise KeyError(
            f"cannot insert at position {index} of this {container._get_name()}: its entries are "
            f"named {names(modules)}, not '0', '1', ... in order, so they cannot be "
            f"shifted"
        )
    entries = list(modules.values())
    entries.insert(index, module)
    for i in range(index, len(entries)):
        modules[intern(str(i))] = entries[i]


def free_key(container: Module, position: int) -> str:
    """The name of the entry that is added for ``position``.

    Raises:
        KeyError: an entry has that name already and would be overwritten.
    """
    modules = container._modules
    key = intern(str(position))
    if key in modules:
        raise KeyError(
            f"cannot append to this {container._get_name()}: the new entry would be named {key!r} "
            f"and overwrite the one that has this name (entries: "
            f"{names(modules)}). Use add_module with a free name, or build a new "
            f"{container._get_name()} from the entries, which numbers them anew"
        )
    return key


def append_all(container: Module, entries: tuple[Module | None, ...], first: int) -> None:
    """Adds the modules by ``add_module`` for the positions from ``first`` on: all of them, or none
    when one is refused.
    """
    modules = container._modules
    length = len(modules)
    try:
        done = _append_children(container, entries, first)
        if done == len(entries):
            return
        # Those from the first one on for which a class, an instance or a hook has a say.
        with undone_on_error(container, among=NUMBERS):
            for position, module in enumerate(entries[done:], first + done):
                container.add_module(free_key(container, position), module)
    except BaseException:
        for key in [*islice(modules, length, None)]:
            if key in NUMBERS:
                del modules[key]
        raise
