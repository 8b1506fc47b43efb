# SPDX-License-Identifier: BSD-3-Clause
"""The entries of a checkpoint as reports show them: keys that differ in their numbers alone as one
(``layers.0-23.attn.q.weight``), and a tree whose equal branches can be folded.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from modtree.files.checkpoint.base import Entry, natural

#: A number that is a part of a name, whatever separates the parts.
_NUMBER = re.compile(r"(?<![^\W_])(0|[1-9][0-9]{0,17})(?![^\W_])")
_MOST_RANGES = 6


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, those without a gap as one: ``0-3,7``; ``*`` for many gaps."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    if len(found) > _MOST_RANGES:
        return "*"
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def folded(keys: Iterable[str], fold: bool = True) -> list[tuple[str, list[str]]]:
    """Groups of keys that differ in their numbers alone, each with one text for all, in the order
    of their first keys. Without ``fold``, each key alone.
    """
    if not fold:
        return [(key, [key]) for key in keys]
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for key in keys:
        groups.setdefault(_without_numbers(key), []).append(key)
    return [(_text(group), group) for group in groups.values()]


def _without_numbers(name: str) -> tuple[str, ...]:
    return tuple(_NUMBER.split(name)[::2])


def _text(keys: list[str]) -> str:
    if len(keys) == 1:
        return keys[0]
    columns = [set(parts) for parts in zip(*map(_NUMBER.split, keys), strict=True)]
    varying = [column for column in columns if len(column) > 1]
    # Only where every combination is there do the ranges of the columns say which keys these are.
    exact = math.prod(len(column) for column in varying) == len(keys)
    parts: list[str] = []
    for column in columns:
        if len(column) == 1:
            parts += column
        else:
            parts.append(ranges(map(int, column)) if exact else "*")
    return "".join(parts)


_DEEPEST = 100  # dots of a key at which it is cut


class _Note(NamedTuple):
    """What is said about a key without a tensor of its own, in the places of an entry."""

    key: str
    text: str
    dtype: str = ""
    nbytes: int = 0


# Of an entry or a note. Functions in C: a file may have a million entries.
_KIND = operator.itemgetter(1, 2, 3)
_NBYTES = operator.itemgetter(3)


class Branch:
    """A name between two dots, and all that is below it. This is split when it is shown: of equal
    branches, one is.

    Attributes:
        name: the name.
        entry: the tensor of this key, or None.
        note: what is shown here instead of a tensor of its own: a tie, or a value that is not a
            tensor.
        keys: the rest of each key below.
        leaves: the entry or note of each.
    """

    __slots__ = ("_level", "entry", "keys", "leaves", "name", "note")

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        self.entry: Entry | None = None
        self.note = ""
        self.keys: list[str] = []
        self.leaves: list[Entry | _Note] = []
        self._level = level

    @property
    def entries(self) -> int:
        """How many there are here and below."""
        return (self.entry is not None) + bool(self.note) + len(self.leaves)

    @property
    def nbytes(self) -> int:
        """The bytes of these."""
        own = 0 if self.entry is None else self.entry.nbytes
        return own + sum(map(_NBYTES, self.leaves))

    def put(self, leaf: Entry | _Note) -> None:
        """Makes this the entry or the note of the branch itself."""
        if isinstance(leaf, Entry):
            self.entry = leaf
        else:
            self.note = leaf.text

    def split(self) -> list[Branch]:
        """The branches below, which take over all that is in this one."""
        level = self._level + 1
        found: dict[str, Branch] = {}
        child, last = self, None
        # Given up, because the rest of each key at each level is more than all keys.
        keys, self.keys = self.keys, []
        leaves, self.leaves = self.leaves, []
        for key, leaf in zip(keys, leaves, strict=True):
            name, dot, rest = key.partition(".") if level <= _DEEPEST else (key, "", "")
            if name != last:  # most entries are beside the one before
                last = name
                known = found.get(name)
                child = found[name] = Branch(name, level) if known is None else known
            if dot:
                child.keys.append(rest)
                child.leaves.append(leaf)
            else:
                child.put(leaf)
        return list(found.values())

    def is_link(self) -> bool:
        """True if there is one child, and nothing here."""
        if not self.keys or self.entry is not None or self.note:
            return False
        if self._level >= _DEEPEST or len(self.keys) == 1:
            return len(set(self.keys)) == 1
        name = self.keys[0].partition(".")[0]
        below = f"{name}."
        # Keys that begin alike are together in their order, of which these are the ends.
        if min(self.keys).startswith(below) and max(self.keys).startswith(below):
            return True
        return all(key == name or key.startswith(below) for key in self.keys)

    def chain(self) -> tuple[str, Branch]:
        """The names from here to where a branch has several children or none, and that branch."""
        names, end = self.name, self
        while end.is_link():
            if len(end.keys) == 1:  # as all of them are in a file whose modules have a weight each
                names += f".{end.keys[0]}"
                leaf = Branch("", end._level + 1)
                leaf.put(end.leaves[0])
                return names, leaf
            (end,) = end.split()
            names += f".{end.name}"
        return names, end

    def signature(self) -> Any:
        """What equal branches share, whatever their names."""
        own = None if self.entry is None else _KIND(self.entry)
        return own, self.note, tuple(self.keys), tuple(map(_KIND, self.leaves))

    def groups(self, fold: bool, sort: str | None) -> list[Group]:
        """The children, those that are equal and differ in the numbers of their names as one.

        Args:
            fold: whether equal ones become one.
            sort: "size" (the largest first), "name", or None for the order of the file.
        """
        found: dict[Any, list[Branch]] = {}
        for child in self.split():
            name = child.name
            alike = fold and _NUMBER.search(name)
            kind = (_without_numbers(name), child.signature()) if alike else name
            found.setdefault(kind, []).append(child)
        groups = [Group(branches) for branches in found.values()]
        if sort == "size":
            groups.sort(key=lambda group: -group.count * group.first.nbytes)
        elif sort == "name":
            groups.sort(key=lambda group: natural(group.first.name))
        return groups


class Group:
    """Branches that are equal but for their names."""

    __slots__ = ("count", "first", "label")

    def __init__(self, branches: list[Branch]) -> None:
        self.first = branches[0]
        self.count = len(branches)
        self.label = _text([branch.name for branch in branches])


def entry_tree(entries: Iterable[Entry], notes: Iterable[tuple[str, str]] = ()) -> Branch:
    """The tree of these tensors.

    Args:
        entries: the tensors.
        notes: keys without a tensor of their own, and what is said about them.
    """
    root = Branch("", 0)
    root.leaves += entries
    root.leaves += (_Note(key, text) for key, text in notes)
    root.keys += [leaf.key for leaf in root.leaves]
    return root
