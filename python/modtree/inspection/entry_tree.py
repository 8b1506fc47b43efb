# SPDX-License-Identifier: BSD-3-Clause
"""The entries of a checkpoint as a tree, whose equal branches can be folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from modtree.files.checkpoint.base import Entry
from modtree.inspection.key_folding import ranges

__all__ = ["Branch", "Group", "entry_tree"]

_DEEPEST = 100  # dots of a key at which it is cut
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass
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

    name: str
    entry: Entry | None = None
    note: str = ""
    children: dict[str, Branch] = field(default_factory=dict)
    entries: int = 0
    elements: int = 0
    nbytes: int = 0
    signature: int = -1

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
    for entry in entries:
        _branch_at(root, entry.key).entry = entry
    for key, note in notes:
        _branch_at(root, key).note = note
    known: dict[Any, int] = {}
    for branch in _from_below(root):
        _sum_up(branch, known)
    return root


def _branch_at(root: Branch, key: str) -> Branch:
    branch = root
    for name in key.split(".", _DEEPEST):
        below = branch.children.get(name)
        if below is None:
            below = branch.children[name] = Branch(name)
        branch = below
    return branch


def _from_below(root: Branch) -> Iterator[Branch]:
    found = [root]
    for branch in found:
        found.extend(branch.children.values())
    return reversed(found)


def _sum_up(branch: Branch, known: dict[Any, int]) -> None:
    children = branch.children.values()
    entry = branch.entry
    elements = 1
    for size in entry.shape if entry is not None else (0,):
        elements *= size
    own = (entry is not None) + bool(branch.note)
    branch.entries = own + sum(child.entries for child in children)
    branch.elements = elements + sum(child.elements for child in children)
    branch.nbytes = (entry.nbytes if entry else 0) + sum(child.nbytes for child in children)
    facts = None if entry is None else (entry.shape, entry.dtype, entry.nbytes)
    below = tuple((child.name, child.signature) for child in children)
    branch.signature = known.setdefault((facts, branch.note, below), len(known))
