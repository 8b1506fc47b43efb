# SPDX-License-Identifier: BSD-3-Clause
"""Whether a renaming is the single explanation of all keys, and single keys that may be one another
where no rule says so.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Mapping

from modtree.core.loading.mismatch import Mismatch, Shape, given_shapes, shape_of
from modtree.core.loading.rename import Rename, rename_function

RENUMBERED = "alike, under other numbers"

_LONGEST_SEARCH = 400  # keys that one key is compared with, letter by letter
_LONGEST_READ = 300  # letters of a key that is compared letter by letter
_CLOSE = 0.75  # how alike two keys must read, from 0 to 1
_MOST_PROBES = 3  # keys below a module by which others like it are found
_MOST_WORK = 50_000_000  # letters of keys that are looked up

_NUMBERS = re.compile("[0-9]+")
_Tails = frozenset[tuple[str, Shape]]


class _TooMuch(Exception):
    """The keys are too many to be sure."""


def doubt(found: Mismatch, rules: Rename) -> str | None:
    """Why the rules are not the one explanation of the keys; None where they are. Rules that change
    numbers are never: see :mod:`modtree.inspection.load_failures.numbering`.

    Modules are alike where the same names and shapes are below them. The rules have to give each
    module of the state dict that is like a renamed one its place in the model, and each like one in
    the model its module, without a change of their order.
    """
    try:
        return _Judge(found, rules).doubt()
    except _TooMuch:
        return "there are too many keys to tell"


class _Judge:
    def __init__(self, found: Mismatch, rules: Rename) -> None:
        function = rename_function(rules)
        prefixes = rules.items() if isinstance(rules, Mapping) else ()
        self._prefixes = [(old, new) for old, new in prefixes if isinstance(old, str)]
        self._given = given_shapes(found)
        self._own = found.own
        self._targets: dict[str, str] = {}
        for key, shape in self._given.items():
            new = function(key)
            if new is None or new not in self._own:
                continue
            if shape is None or self._own[new] in (None, shape):
                self._targets[key] = new
        self._ranks = _Ranks(self._given, self._own)
        self._given_by_end = _by_end(self._given)
        self._own_by_end = _by_end(self._own)
        self._work = _MOST_WORK

    def doubt(self) -> str | None:
        groups: dict[tuple[str, str], list[str]] = defaultdict(list)
        for key, new in self._targets.items():
            if key != new:
                old, head = self._heads(key, new)
                groups[old, head].append(key[len(old) :])
        seen: set[_Tails] = set()
        for (old, head), tails in groups.items():
            if "" in tails:
                reason = self._of_entry(old, head)
            else:
                below = frozenset((tail, self._own[head + tail]) for tail in tails)
                if below in seen:
                    continue
                seen.add(below)
                reason = self._of_modules(below)
            if reason is not None:
                return reason
        return None

    def _heads(self, key: str, new: str) -> tuple[str, str]:
        """What of a key became what: what a rule says, or else what is left of the two keys without
        the parts that they have in common at their ends.
        """
        for old, by in self._prefixes:
            if key.startswith(old) and new == by + key[len(old) :]:
                return old, by
        parts, others = key.split("."), new.split(".")
        common = 0
        most = min(len(parts), len(others))
        while common < most and parts[-1 - common] == others[-1 - common]:
            common += 1
        if not common:
            return key, new
        length = len(".".join(parts[-common:]))
        return key[: len(key) - length], new[: len(new) - length]

    def _of_modules(self, tails: _Tails) -> str | None:
        given = self._alike(self._given, self._given_by_end, tails)
        own = self._alike(self._own, self._own_by_end, tails)
        pairs = {}
        for head, tail in given.items():
            new = self._targets.get(head + tail)
            if new is not None and new.endswith(tail):
                pairs[head] = new[: len(new) - len(tail)]
        ranks = {head: self._ranks.of_given(head + tail) for head, tail in given.items()}
        places = {head: self._ranks.of_own(head + tail) for head, tail in own.items()}
        return self._of_pairs(pairs, ranks, places)

    def _of_pairs(
        self, pairs: dict[str, str], given: dict[str, int], own: dict[str, int]
    ) -> str | None:
        """Why pairs of what is alike are not the only ones.

        Args:
            pairs: What of the state dict is given to what of the model.
            given: All of the state dict that is alike, and its place.
            own: The same of the model.
        """
        if any(_is_renumbered(old, new) for old, new in pairs.items()):
            return f"{_both(given, own)} {RENUMBERED}"
        if pairs.keys() != given.keys() or set(pairs.values()) != own.keys():
            return f"{_both(given, own)} alike"
        highest = highest_changed = -1
        for old in sorted(pairs, key=given.__getitem__):
            new = pairs[old]
            rank = own[new]
            if rank < (highest if old != new else highest_changed):
                return f"{_both(given, own)} alike, in another order by these names"
            highest = max(highest, rank)
            if old != new:
                highest_changed = max(highest_changed, rank)
        return None

    def _alike(
        self, shapes: Mapping[str, Shape], by_end: Mapping[object, list[str]], tails: _Tails
    ) -> dict[str, str]:
        """The beginnings of keys below which most of the tails are, with their shapes, and one of
        the tails that is there. What is like a part of it may have lost the rest.
        """
        probes = sorted(tails, key=lambda tail: len(by_end.get(_end(*tail), ())))[:_MOST_PROBES]
        length = sum(len(tail) for tail, _ in tails)
        heads: dict[str, str] = {}
        for probe, shape in probes:
            for key in by_end.get(_end(probe, shape), ()):
                self._spend(len(probe))
                head = key[: len(key) - len(probe)]
                if head in heads or not key.endswith(probe) or (head and head[-1] != "."):
                    continue
                self._spend(length + len(tails) * len(head))
                fitting = sum(shapes.get(head + tail, -1) == size for tail, size in tails)
                if 2 * fitting > len(tails):
                    heads[head] = probe
        return heads

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise _TooMuch

    def _of_entry(self, old: str, new: str) -> str | None:
        """Of an entry with another name: those of the same shape in its module."""
        shape = self._own[new]
        given = self._entries_beside(self._given, self._given_by_end, old, shape)
        own = self._entries_beside(self._own, self._own_by_end, new, shape)
        pairs = {key: self._targets[key] for key in given if self._targets.get(key) in own}
        ranks = {key: self._ranks.of_given(key) for key in given}
        return self._of_pairs(pairs, ranks, {key: self._ranks.of_own(key) for key in own})

    def _entries_beside(
        self,
        shapes: Mapping[str, Shape],
        by_end: Mapping[object, list[str]],
        key: str,
        shape: Shape,
    ) -> list[str]:
        beside = by_end.get(("in", key.rpartition(".")[0]), ())
        self._spend(len(beside) * len(key))
        return [other for other in beside if shapes[other] == shape]


def _is_renumbered(old: str, new: str) -> bool:
    numbers, others = _NUMBERS.findall(old), _NUMBERS.findall(new)
    return len(numbers) == len(others) and numbers != others


def _end(tail: str, shape: Shape) -> object:
    return tail.rpartition(".")[2], shape


def _by_end(shapes: Mapping[str, Shape]) -> dict[object, list[str]]:
    """Keys by their last part and shape, and by their module."""
    found: dict[object, list[str]] = defaultdict(list)
    for key, shape in shapes.items():
        module, _, name = key.rpartition(".")
        found[name, shape].append(key)
        found["in", module].append(key)
    return found


def _both(given: Collection[str], own: Collection[str]) -> str:
    return f"{_some(given)} of the state dict and {_some(own)} of the model are"


def _some(heads: Collection[str]) -> str:
    shown = ", ".join(repr(head.removesuffix(".")) for head in itertools.islice(heads, 3))
    return f"{shown} and {len(heads) - 3} more" if len(heads) > 3 else shown


class _Ranks:
    """The places of keys on both sides. Files may have their keys sorted by name, which says
    nothing of the order of modules: then by the names, numbers as such, on both.
    """

    def __init__(self, given: Mapping[str, Shape], own: Mapping[str, Shape]) -> None:
        keys, others = list(given), list(own)
        if _is_sorted(keys) and not _is_sorted(others):
            keys.sort(key=_natural)
            others.sort(key=_natural)
        self._given = {key: rank for rank, key in enumerate(keys)}
        self._own = {key: rank for rank, key in enumerate(others)}

    def of_given(self, key: str) -> int:
        return self._given[key]

    def of_own(self, key: str) -> int:
        return self._own[key]


def _is_sorted(keys: list[str]) -> bool:
    return keys == sorted(keys)


def _natural(key: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", key)
    ]


# -- single keys -----------------------------------------------------------------------------------


def near_matches(found: Mismatch, most: int = 5) -> list[tuple[str, str]]:
    """Pairs of a missing key and the unexpected one that reads most like it; none where other
    pairs fit as well.
    """
    by_name: dict[str, list[str]] = {}
    unexpected = [key for key in found.unexpected if len(key) <= _LONGEST_READ]
    for key in unexpected:
        by_name.setdefault(key.rpartition(".")[2], []).append(key)
    pairs = []
    for key in found.missing[:most]:
        if len(key) > _LONGEST_READ:
            continue
        candidates = by_name.get(key.rpartition(".")[2]) or unexpected
        close = difflib.get_close_matches(key, candidates[:_LONGEST_SEARCH], n=1, cutoff=_CLOSE)
        if close and _may_be(found, key, close[0]):
            pairs.append((key, close[0]))
    names = {other: key for key, other in pairs}
    is_sure = len(names) == len(pairs) and doubt(found, lambda key: names.get(key, key)) is None
    return pairs if is_sure else []


def _may_be(found: Mismatch, key: str, other: str) -> bool:
    saved, own = shape_of(found.state_dict.get(other)), found.own.get(key)
    return saved is None or own is None or saved == own
