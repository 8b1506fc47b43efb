# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of layers that have shifted between a checkpoint and a model.

A layer that is put in, or taken out, gives all that follow another number. Then keys that match by
name may be those of other layers, and nobody notices where the shapes are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from modtree.core.loading.mismatch import Shape

_LONGEST_READ = 300  # letters of a key that is read
_MOST_COMPARED = 40_000  # pairs of numbered layers that are compared
_MOST_SHOWN = 4  # numbers that need no summary
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)$")

_Content = dict[str, Shape]  # what is below a numbered layer, by the rest of the key


class Shift(NamedTuple):
    """Layers with numbers, of which the names do not tell which are the same.

    Attributes:
        begin: What is before the numbers, "layers." for instance.
        end: What is behind them in the same part of the path.
        given: The numbers in the state dict.
        own: Those in the model.
        pairs: The one way in which all fit; None where there are several, or none.
        is_entry: Whether they are parameters or buffers, not modules.
    """

    begin: str
    end: str
    given: list[int]
    own: list[int]
    pairs: dict[int, int] | None
    is_entry: bool = False

    def __str__(self) -> str:
        sides = (
            f"the state dict has {self._shown(self.given)} where the model has "
            f"{self._shown(self.own)}"
        )
        return (
            f"numbers {'have' if len(self.given) == len(self.own) else 'may have'} shifted: {sides}"
        )

    def _shown(self, numbers: list[int]) -> str:
        names = [f"'{self.begin}{number}{self.end}'" for number in numbers]
        if len(names) <= _MOST_SHOWN:
            return ", ".join(names)
        return f"{names[0]}, {names[1]}, ... {names[-1]} ({len(names)})"

    def rules(self) -> dict[str | re.Pattern[str], str]:
        """What ``rename=`` takes, in an order in which no rule meets what another made."""
        pairs = sorted((old, new) for old, new in (self.pairs or {}).items() if old != new)
        up = [pair for pair in pairs if pair[1] > pair[0]]
        down = [pair for pair in pairs if pair[1] < pair[0]]
        rules: dict[str | re.Pattern[str], str] = {}
        for old, new in (*reversed(up), *down):
            before, after = (f"{self.begin}{number}{self.end}" for number in (old, new))
            if self.is_entry:
                rules[re.compile(f"^{re.escape(before)}$")] = after
            else:
                rules[f"{before}."] = f"{after}."
        return rules


def find_shifts(given: Mapping[str, Shape], own: Mapping[str, Shape]) -> list[Shift]:
    """The groups of numbered layers that may have shifted.

    Args:
        given: The shapes in the state dict by their keys.
        own: Those in the model.
    """
    ours = _layers(own)
    found = []
    for place, theirs in _layers(given).items():
        if place in ours:
            shift = _compared(place, theirs, ours[place])
            if shift is not None:
                found.append(shift)
    return found


def _layers(shapes: Mapping[str, Shape]) -> dict[tuple[str, str], dict[int, _Content]]:
    """By what is around a number in keys: by number, what is below."""
    places: dict[tuple[str, str], dict[int, _Content]] = {}
    for key, shape in shapes.items():
        if len(key) > _LONGEST_READ:
            continue
        start = 0
        while start <= len(key):
            stop = key.find(".", start)
            stop = len(key) if stop < 0 else stop
            match = _NUMBERED.match(key[start:stop])
            if match:
                place = key[:start] + match[1], match[3]
                layers = places.setdefault(place, {})
                layers.setdefault(int(match[2]), {})[key[stop:]] = shape
            start = stop + 1
    return places


def _compared(
    place: tuple[str, str], theirs: dict[int, _Content], ours: dict[int, _Content]
) -> Shift | None:
    if theirs.keys() == ours.keys() and all(theirs[n] == ours[n] for n in ours):
        return None
    given, own = sorted(theirs), sorted(ours)
    is_entry = any("" in content for content in theirs.values())
    shift = Shift(*place, given, own, None, is_entry)
    is_same_set = given == own
    if len(given) * len(own) > _MOST_COMPARED:
        return None if is_same_set else shift
    alike = _Alike()
    by_name = sum(n in ours and alike(theirs[n], ours[n]) for n in given)
    most, ways, pairs = _in_order([theirs[n] for n in given], [ours[n] for n in own], alike)
    if is_same_set and most == by_name:
        return None  # names say as much as any other way
    chosen = {given[i]: own[k] for i, k in pairs}
    if most > by_name and _do_shapes_decide(theirs, ours, chosen, alike):
        return shift._replace(pairs=chosen)
    loaded = [n for n in given if n in ours and _has_common(theirs[n], ours[n])]
    if not loaded or (most == by_name == len(loaded) and ways == 1):
        return None
    return shift


def _do_shapes_decide(
    theirs: dict[int, _Content], ours: dict[int, _Content], pairs: dict[int, int], alike: _Alike
) -> bool:
    """True if this is the one way in which all the layers fit, in any order."""
    if not len(pairs) == len(theirs) == len(ours):
        return False
    return all(
        theirs[old] == ours[new]
        and sum(alike(theirs[old], content) for content in ours.values()) == 1
        and sum(alike(content, ours[new]) for content in theirs.values()) == 1
        for old, new in pairs.items()
    )


def _has_common(some: _Content, others: _Content) -> bool:
    """True if a load would put any of some into others."""
    return any(name in others and others[name] in (None, shape) for name, shape in some.items())


class _Alike:
    """Whether two numbered layers may be the same. Entries that one has alone say nothing: they may
    have been lost, or be of another kind.
    """

    def __init__(self) -> None:
        self._kinds: dict[int, int] = {}  # of contents by their ids
        self._known: dict[object, int] = {}
        self._answers: dict[tuple[int, int], bool] = {}

    def _kind(self, content: _Content) -> int:
        kind = self._kinds.get(id(content))
        if kind is None:
            kind = self._known.setdefault(frozenset(content.items()), len(self._known))
            self._kinds[id(content)] = kind
        return kind

    def __call__(self, some: _Content, others: _Content) -> bool:
        pair = self._kind(some), self._kind(others)
        if pair not in self._answers:
            common = [name for name in some if name in others]
            self._answers[pair] = 2 * len(common) >= min(len(some), len(others)) and all(
                some[name] == others[name] for name in common
            )
        return self._answers[pair]


def _in_order(
    some: list[_Content], others: list[_Content], alike: _Alike
) -> tuple[int, int, list[tuple[int, int]]]:
    """How many layers of two rows can be paired without a change of their order, in how many ways,
    and one of these.
    """
    columns = len(others) + 1
    most = [[0] * columns for _ in range(len(some) + 1)]
    ways = [[1] * columns for _ in range(len(some) + 1)]
    for i, one in enumerate(some, 1):
        for k, other in enumerate(others, 1):
            above, left, corner = most[i - 1][k], most[i][k - 1], most[i - 1][k - 1]
            is_pair = alike(one, other)
            best = max(above, left, corner + 1 if is_pair else 0)
            count = ways[i - 1][k] * (above == best) + ways[i][k - 1] * (left == best)
            count -= ways[i - 1][k - 1] * (corner == best)
            if is_pair and corner + 1 == best:
                count += ways[i - 1][k - 1]
            most[i][k], ways[i][k] = best, count
    pairs = []
    i, k = len(some), len(others)
    while most[i][k]:
        if most[i - 1][k] == most[i][k]:
            i -= 1
        elif most[i][k - 1] == most[i][k]:
            k -= 1
        else:
            i, k = i - 1, k - 1
            pairs.append((i, k))
    return most[-1][-1], ways[-1][-1], pairs
