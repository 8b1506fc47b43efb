# SPDX-License-Identifier: BSD-3-Clause
"""What ``modtree.compare`` found: as lists, as text, and for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from modtree.files.pickled.stand_in import short_text
from modtree.inspection.comparison.value_change import ValueChange
from modtree.inspection.entries import folded
from modtree.inspection.phrases import entries_text, noun, printable

_FEW = 6  # names of parts
_LONGEST = 60  # letters of a value that is not a tensor


class Unequal(NamedTuple):
    """What is on each side."""

    a: Any
    b: Any


@dataclass(repr=False)
class Diff:
    """What differs between two models, state dicts or checkpoints; true where anything does.

    Args:
        a: What the first side is called.
        b: The same of the second.
        entries_of_a: How many entries the first side has.
        entries_of_b: The same of the second.
        in_both: How many keys both have.
        only_in_a: Keys that the second side lacks.
        only_in_b: Keys that the first side lacks.
        shapes: The shapes of entries that differ in them, by key; None is one not known yet.
        dtypes: The same of dtypes.
        values: By how much the values of an entry differ, where by more than the tolerance.
        others: Entries that are not tensors: what is on each side.
        versions: The versions of modules that differ, by path, where both sides know them.
        compared: How many entries were compared by their values.
        not_compared: Entries whose values could not be compared, and why. They do not make a
            difference.
        likely_rename: Rules for ``rename=`` by which most keys that are only in the first side
            become keys of the second.
        near_keys: Without such a rule: keys that read alike, of the first and second side.
        doubts: What does not tell which entry of the first side is which of the second.
        reasons: Of keys that are only on one side, and that the model on the other knows: what
            it has there.
        left_out: By side, "a" or "b": the parts of its file beside the one that was compared.
    """

    a: str
    b: str
    entries_of_a: int
    entries_of_b: int
    in_both: int
    only_in_a: list[str] = field(default_factory=list)
    only_in_b: list[str] = field(default_factory=list)
    shapes: dict[str, Unequal] = field(default_factory=dict)
    dtypes: dict[str, Unequal] = field(default_factory=dict)
    values: dict[str, ValueChange] = field(default_factory=dict)
    others: dict[str, Unequal] = field(default_factory=dict)
    versions: dict[str, Unequal] = field(default_factory=dict)
    compared: int = 0
    not_compared: dict[str, str] = field(default_factory=dict)
    likely_rename: dict[str, str] = field(default_factory=dict)
    near_keys: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """True if anything differs."""
        found = (self.only_in_a, self.only_in_b, self.shapes, self.dtypes, self.values)
        return any(found) or bool(self.others or self.versions)

    def __str__(self) -> str:
        return self.to_text()

    __repr__ = __str__  # what a prompt shows

    def to_text(self, fold: bool = True) -> str:
        """What differs, line by line.

        Args:
            fold: Keys that differ in their numbers alone, and in the same way, share a line.
        """
        return "\n".join(_lines(self, fold))

    def to_dict(self) -> dict[str, Any]:
        """The same in lists, dicts, text and numbers, for JSON: infinities are the text "inf"."""
        return {
            "differs": bool(self),
            "a": {"name": self.a, "entries": self.entries_of_a},
            "b": {"name": self.b, "entries": self.entries_of_b},
            "only_in_a": list(self.only_in_a),
            "only_in_b": list(self.only_in_b),
            "shapes": {key: [_sizes(s) for s in pair] for key, pair in self.shapes.items()},
            "dtypes": {key: list(pair) for key, pair in self.dtypes.items()},
            "values": {
                key: {
                    "elements": change.elements,
                    "different": change.different,
                    "max_abs": _number(change.max_abs),
                    "max_rel": _number(change.max_rel),
                }
                for key, change in self.values.items()
            },
            "others": {key: [_plain(v) for v in pair] for key, pair in self.others.items()},
            "versions": {key: [_plain(v) for v in pair] for key, pair in self.versions.items()},
            "compared": self.compared,
            "not_compared": dict(self.not_compared),
            "likely_rename": dict(self.likely_rename),
            "near_keys": dict(self.near_keys),
            "doubts": list(self.doubts),
            "reasons": dict(self.reasons),
            "left_out": {side: list(names) for side, names in self.left_out.items()},
        }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _sizes(shape: tuple[int, ...] | None) -> list[int] | None:
    return None if shape is None else list(shape)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return _number(value)
    return value if value is None or isinstance(value, (bool, int, str)) else _short(value)


def _short(value: Any) -> str:
    try:
        text = short_text(value)
    except Exception:
        text = f"a {type(value).__name__} whose repr() fails"
    text = printable(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# -- lines -----------------------------------------------------------------------------------------


def _groups(keys: Iterable[str], fold: bool) -> Iterator[tuple[str, list[str]]]:
    for text, group in folded(keys, fold):
        text = printable(text)
        yield (text if len(group) == 1 else f"{text}: {len(group):,} entries"), group


def _keys(keys: list[str], fold: bool) -> Iterator[str]:
    return (f"  {text}" for text, _ in _groups(keys, fold))


def _changes(
    found: dict[str, Unequal], fold: bool, shown: Callable[[Any], Any], every: int = -1
) -> Iterator[str]:
    """Entries with what is on each side; only those that change in the same way fold.

    Args:
        found: the entries.
        fold: whether they fold.
        shown: the text of what is on a side.
        every: how many entries could have changed.
    """
    by_change: dict[str, list[str]] = {}
    for key, (a, b) in found.items():
        by_change.setdefault(f"{shown(a)} -> {shown(b)}", []).append(key)
    for change, keys in by_change.items():
        if fold and len(keys) == every > 1:
            yield f"  all {entries_text(every)}: {change}"
            continue
        for text, _ in _groups(keys, fold):
            yield f"  {text or 'the root'}: {change}"


def _values(found: dict[str, ValueChange], fold: bool) -> Iterator[str]:
    for text, keys in _groups(found, fold):
        changes = [found[key] for key in keys]
        elements = sum(change.elements for change in changes)
        yield (
            f"  {text}: {sum(change.different for change in changes):,} of "
            f"{noun(elements, 'element')}, by at most "
            f"{max(change.max_abs for change in changes):.3g} "
            f"(relative {max(change.max_rel for change in changes):.3g})"
        )


def _hints(result: Diff) -> Iterator[str]:
    if result.likely_rename:
        yield (
            "most keys that are only in a are keys of b under another name: rename="
            f"{result.likely_rename!r}"
        )
    for doubt in result.doubts:
        yield f"not clear: {printable(doubt)}"
    for a, b in result.near_keys.items():
        yield f"{printable(a)} of a is perhaps {printable(b)} of b"


def _reasons(found: dict[str, str], fold: bool) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for key, reason in found.items():
        by_reason.setdefault(reason, []).append(key)
    for reason, keys in by_reason.items():
        for text, _ in _groups(keys, fold):
            yield f"  {text}: {printable(reason)}"


def _lines(result: Diff, fold: bool) -> Iterator[str]:
    yield f"a: {printable(result.a)}, {entries_text(result.entries_of_a)}"
    yield f"b: {printable(result.b)}, {entries_text(result.entries_of_b)}"
    left_out = dict(result.left_out)
    if left_out.get("a") == left_out.get("b"):
        left_out = {"": left_out["a"]} if left_out else {}
    for side, names in left_out.items():
        more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
        of = f", of {side}" if side else ""
        yield f"not compared{of}: {', '.join(map(printable, names[:_FEW]))}{more}"
    if result.only_in_a:
        yield f"only in a ({entries_text(len(result.only_in_a))}):"
        yield from _keys(result.only_in_a, fold)
    if result.only_in_b:
        yield f"only in b ({entries_text(len(result.only_in_b))}):"
        yield from _keys(result.only_in_b, fold)
    if result.reasons:
        yield "of these:"
        yield from _reasons(result.reasons, fold)
    yield from _hints(result)
    if result.shapes:
        yield f"shapes differ ({entries_text(len(result.shapes))}):"
        yield from _changes(
            result.shapes, fold, lambda s: "not known yet" if s is None else list(s)
        )
    if result.dtypes:
        yield f"dtypes differ ({entries_text(len(result.dtypes))}):"
        yield from _changes(result.dtypes, fold, str, result.in_both)
    if result.values:
        yield f"values differ ({len(result.values):,} of {entries_text(result.compared)}):"
        yield from _values(result.values, fold)
    if result.others:
        yield f"other values differ ({entries_text(len(result.others))}):"
        yield from _changes(result.others, fold, _short)
    if result.versions:
        yield f"versions of modules differ ({noun(len(result.versions), 'module')}):"
        yield from _changes(result.versions, fold, _short)
    if result.not_compared:
        yield f"values not compared ({entries_text(len(result.not_compared))}):"
        yield from _reasons(result.not_compared, fold)
    if not result:
        yield "no differences"
