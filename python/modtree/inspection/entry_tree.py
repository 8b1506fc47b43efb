# SPDX-License-Identifier: BSD-3-Clause
"""The entries of a checkpoint as a tree, whose equal branches can be folded."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from modtree.files.checkpoint.base import Entry
from modtree.inspection.key_folding import ranges

__all__ = ["Branch", "Group", "entry_tree"]

_DEEPEST = 100  # dots of a key at which it is cut
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


_NONE: Mapping[str, Any] = MappingProxyType({})


class Branch:
    """A name between two dots.

    Attributes:
        name: the name.
        entry: the tensor of this key, or None.
        note: what stands here instead of a tensor of its own: a tie, or a value that is no tensor.
        children: the branches below by their names.
        entries, elements, nbytes: of everything here and below.
        signature: a number that equal branches share, whatever their names.
    """

    __slots__ = (
        "children",
        "elements",
        "entries",
        "entry",
        "name",
        "nbytes",
        "note",
        "signature",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.entry: Entry | None = None
        self.note = ""
        self.children: Any = _NONE  # a dict where there are any: most branches have none
        self.entries = self.elements = self.nbytes = 0
        self.signature = -1

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
    places: dict[str, Branch] = {}
    for entry in entries:
        _branch_at(root, places, entry.key).entry = entry
    for key, note in notes:
        _branch_at(root, places, key).note = note
    known: dict[Any, int] = {}
    counts: dict[tuple[int, ...], int] = {}
    for branch in _from_below(root):
        _sum_up(branch, known, counts)
    return root


def _branch_at(root: Branch, places: dict[str, Branch], key: str) -> Branch:
    """The branch of a key.

    Args:
        root: What all keys are below.
        places: The branches that have others below them, by their keys.
        key: The key.
    """
    names, branch = [], root
    above, dot, name = key.rpartition(".")
    if dot and key.count(".") > _DEEPEST:
        *names, name = key.split(".", _DEEPEST)
    else:
        while dot:  # up to a branch that is there
            found = places.get(above)
            if found is not None:
                branch = found
                break
            above, dot, other = above.rpartition(".")
            names.append(other)
        names.reverse()
    for other in names:
        branch = _child(branch, other)
    if names and key.count(".") <= _DEEPEST:
        places[key.rpartition(".")[0]] = branch
    return _child(branch, name)


def _child(parent: Branch, name: str) -> Branch:
    if not parent.children:
        parent.children = {}
    found = parent.children.get(name)
    if found is None:
        found = parent.children[name] = Branch(name)
    return found


def _from_below(root: Branch) -> Iterator[Branch]:
    found = [root]
    for branch in found:
        found.extend(branch.children.values())
    return reversed(found)


def _sum_up(branch: Branch, known: dict[Any, int], counts: dict[tuple[int, ...], int]) -> None:
    """Adds up what is in a branch, when its children are.

    Args:
        branch: The branch.
        known: Signatures by what they stand for.
        counts: Elements by shape.
    """
    entry, facts = branch.entry, None
    entries = 1 if branch.note else 0
    elements = nbytes = 0
    if entry is not None:
        shape = entry.shape
        found = counts.get(shape)
        if found is None:
            found = counts[shape] = math.prod(shape)
        entries, elements, nbytes = entries + 1, found, entry.nbytes
        facts = (shape, entry.dtype, nbytes)
    below: Any = ()
    if branch.children:
        for child in branch.children.values():
            entries += child.entries
            elements += child.elements
            nbytes += child.nbytes
        below = tuple([(child.name, child.signature) for child in branch.children.values()])
    branch.entries, branch.elements, branch.nbytes = entries, elements, nbytes
    branch.signature = known.setdefault((facts, branch.note, below), len(known))
