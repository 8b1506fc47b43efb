# SPDX-License-Identifier: BSD-3-Clause
"""The entries of a checkpoint as a tree, whose equal branches can be folded."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from modtree.files.checkpoint.base import Entry
from modtree.inspection.key_folding import ranges

__all__ = ["Branch", "Group", "entry_tree"]

_DEEPEST = 100  # dots of a key at which it is cut
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


class Branch:
    """A name between two dots.

    Attributes:
        name: the name.
        entry: the tensor of this key, or None.
        note: what stands here instead of a tensor of its own: a tie, or a value that is no tensor.
        entries, elements, nbytes: of everything here and below.
        signature: what equal branches share, whatever their names.
    """

    __slots__ = (
        "below",
        "elements",
        "entries",
        "entry",
        "name",
        "nbytes",
        "note",
        "signature",
    )

    entries: int
    elements: int
    nbytes: int
    signature: Any

    def __init__(self, name: str, entry: Entry | None = None) -> None:
        self.name = name
        self.entry = entry
        self.note = ""
        # Most entries have nothing below them, and become branches when they are looked at.
        self.below: dict[str, Branch | Entry] = {}

    @property
    def children(self) -> dict[str, Branch]:
        """The branches below by their names."""
        return {
            name: child if isinstance(child, Branch) else _leaf(name, child)
            for name, child in self.below.items()
        }

    def groups(self, fold: bool, sort: str | None) -> list[Group]:
        """The children, those with numbers as names that are equal as one.

        Args:
            fold: whether equal ones become one.
            sort: "size" (the largest first), "name", or None for the order of the file.
        """
        found: dict[Any, list[Branch]] = {}
        for name, child in self.children.items():
            alike = fold and _NUMBER.fullmatch(name)
            found.setdefault(child.signature if alike else name, []).append(child)
        groups = [Group(branches) for branches in found.values()]
        if sort == "size":
            groups.sort(key=lambda group: -group.nbytes)
        elif sort == "name":
            groups.sort(key=lambda group: _natural(group.first.name))
        return groups


class Group:
    """Branches that are equal but for their names."""

    def __init__(self, branches: list[Branch]) -> None:
        self.first = branches[0]
        self.count = len(branches)
        self.nbytes = self.count * self.first.nbytes
        self.entries = self.count * self.first.entries
        self.label = self.first.name
        if self.count > 1:
            self.label = ranges(int(branch.name) for branch in branches)


def _natural(name: str) -> list[Any]:
    parts = re.split(r"([0-9]{1,18})", name)
    return [(0, int(part), "") if at % 2 else (1, 0, part) for at, part in enumerate(parts)]


def entry_tree(entries: Iterable[Entry], notes: Iterable[tuple[str, str]] = ()) -> Branch:
    """The tree of these tensors.

    Args:
        entries: the tensors.
        notes: keys without a tensor of their own, and what is said about them.
    """
    root = Branch("")
    made = [root]  # in this order, so that all that is above a branch comes before it
    places: dict[str, Branch] = {}  # what other branches are below, by their keys
    for entry in entries:
        above, dot, name = entry.key.rpartition(".")
        parent = places.get(above) if dot else root
        if parent is None:
            parent, name = _parent_of(entry.key, root, places, made, above, name)
        if name in parent.below:
            _child(parent, made, name).entry = entry
        else:
            parent.below[name] = entry
    for key, note in notes:
        above, dot, name = key.rpartition(".")
        parent = root
        if dot:
            parent, name = _parent_of(key, root, places, made, above, name)
        _child(parent, made, name).note = note
    _sum_up(made)
    return root


def _leaf(name: str, entry: Entry) -> Branch:
    branch = Branch(name, entry)
    _sum_up([branch])
    return branch


def _parent_of(
    key: str,
    root: Branch,
    places: dict[str, Branch],
    made: list[Branch],
    above: str,
    name: str,
) -> tuple[Branch, str]:
    """The branch that a key is below, and its name there, which may be another one than that behind
    the last dot.
    """
    if key.count(".") <= _DEEPEST:
        return _place_of(above, root, places, made), name
    *names, name = key.split(".", _DEEPEST)
    branch = root
    for other in names:
        branch = _child(branch, made, other)
    return branch, name


def _place_of(key: str, root: Branch, places: dict[str, Branch], made: list[Branch]) -> Branch:
    found = places.get(key)
    if found is None:
        above, dot, name = key.rpartition(".")
        parent = root
        if dot:
            parent = places.get(above) or _place_of(above, root, places, made)
        found = places[key] = _child(parent, made, name)
    return found


def _child(parent: Branch, made: list[Branch], name: str) -> Branch:
    found = parent.below.get(name)
    if isinstance(found, Branch):
        return found
    branch = parent.below[name] = Branch(name, found)
    made.append(branch)
    return branch


def _sum_up(made: list[Branch]) -> None:
    """Adds up what is in each branch, and finds those that are equal.

    Args:
        made: All branches, each behind what it is in.
    """
    known: dict[Any, int] = {}  # signatures by what they stand for
    counts: dict[tuple[int, ...], int] = {}  # elements by shape
    for branch in reversed(made):
        entries = 1 if branch.note else 0
        elements = nbytes = 0
        kinds: list[Any] = [branch.note]
        if branch.entry is not None:
            shape, dtype, nbytes = branch.entry[1:4]
            entries, elements = entries + 1, math.prod(shape)
            kinds += (shape, dtype, nbytes)
        for name, child in branch.below.items():
            if isinstance(child, Entry):
                shape, dtype, size = child[1:4]
                found = counts.get(shape)
                if found is None:
                    found = counts[shape] = math.prod(shape)
                entries += 1
                elements += found
                nbytes += size
                kinds += (name, ("", shape, dtype, size))
            else:
                entries += child.entries
                elements += child.elements
                nbytes += child.nbytes
                kinds += (name, child.signature)
        branch.entries, branch.elements, branch.nbytes = entries, elements, nbytes
        kind = tuple(kinds)
        branch.signature = known.setdefault(kind, len(known)) if branch.below else kind
