# SPDX-License-Identifier: BSD-3-Clause
"""What a selection says: the outline of the branches that lead to what is selected, or why a search
found nothing.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from modtree.core.families import family_of
from modtree.core.patterns import Machine, Patterns, expanded, split_parts, texts_of
from modtree.editing.walking import modules_that_match, registry, shape_of

_MOST_LINES = 40
_MARK = "  <--"
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


class _Branch:
    __slots__ = ("below", "is_selected", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.is_selected = False
        self.below: dict[str, _Branch] = {}


def outline(model: Any, selected: Iterable[tuple[str, Any]]) -> list[str]:
    """Lines with the classes of modules, and a mark at what is selected.

    Siblings in a row whose branches are alike share a line.

    Args:
        model: The root.
        selected: Paths, and the modules, parameters or buffers at them.
    """
    root = _Branch("", type(model).__name__)
    for path, value in selected:
        at, module = root, model
        *parents, last = path.split(".") if path else [""]
        for name in parents:
            module = registry(module, "_modules").get(name)
            at = at.below.setdefault(name, _Branch(name, type(module).__name__))
        if path:
            at = at.below.setdefault(last, _Branch(last, _text(value)))
        at.is_selected = True
    keys: dict[int, int] = {}
    _number(root, keys)
    lines = [root.text + (_MARK if root.is_selected else "")]
    _write(root, 1, keys, lines)
    if len(lines) > _MOST_LINES:
        more = len(lines) - _MOST_LINES
        lines[_MOST_LINES:] = [f"... and {more} more line{'s' if more > 1 else ''}"]
    return lines


def _text(value: Any) -> str:
    name, shape = type(value).__name__, shape_of(value)
    if shape is not None:
        return f"{name}{shape}"
    return name if family_of(value) is None else f"{name}, uninitialized"


def _number(root: _Branch, keys: dict[int, int]) -> None:
    """Gives branches that are alike the same number; their own names do not count."""
    numbers: dict[tuple[Any, ...], int] = {}
    order = [root]
    for branch in order:
        order += branch.below.values()
    for branch in reversed(order):
        inner = tuple((name, keys[id(below)]) for name, below in branch.below.items())
        key = (branch.text, branch.is_selected, inner)
        keys[id(branch)] = numbers.setdefault(key, len(numbers))


def _write(root: _Branch, level: int, keys: dict[int, int], lines: list[str]) -> None:
    waiting = [(level, group) for group in reversed(_groups(root, keys))]
    while waiting:
        level, group = waiting.pop()
        first, last = group[0], group[-1]
        label = first.name
        if len(group) > 1:
            number = last.name[len(first.name.rstrip("0123456789")) :]
            label = f"{first.name}-{number} x {len(group)}"
        mark = _MARK if first.is_selected else ""
        lines.append(f"{'  ' * level}{label}: {first.text}{mark}")
        waiting += [(level + 1, group) for group in reversed(_groups(first, keys))]


def _groups(branch: _Branch, keys: dict[int, int]) -> list[list[_Branch]]:
    """The branches below, those in a row that are alike and have numbers that count up as one."""
    groups: list[list[_Branch]] = []
    for below in branch.below.values():
        if groups and keys[id(groups[-1][-1])] == keys[id(below)]:
            before, here = _NUMBERED.fullmatch(groups[-1][-1].name), _NUMBERED.fullmatch(below.name)
            if before and here and before[1] == here[1] and int(here[2]) == int(before[2]) + 1:
                groups[-1].append(below)
                continue
        groups.append([below])
    return groups


_MOST_NAMES = 12


def why_no_match(model: Any, patterns: Patterns, tables: Sequence[str] = ()) -> str:
    """Says for each pattern how far it leads, and what there is instead.

    Args:
        model: The root.
        patterns: The patterns, none of which matches.
        tables: The registries of what is looked for, if that is not modules.
    """
    found: list[str] = []
    for pattern in texts_of(patterns):
        reasons = dict.fromkeys(_how_far(model, text, tables) for text in expanded(pattern))
        found.append(f"{pattern!r}: {' and '.join(reasons)}")
    more = [f"and {len(found) - 3} more patterns"] if len(found) > 3 else []
    return "; ".join(found[:3] + more) or "no pattern was given"


def _how_far(model: Any, pattern: str, tables: Sequence[str]) -> str:
    """How far a pattern without braces leads."""
    parts = split_parts(pattern)
    if tables and modules_that_match(model, Machine(pattern)):
        name = tables[0][1:] if len(tables) == 1 else "tensors"
        return f"modules match; the {name} below them match {pattern + '.**'!r}"
    for stop in range(len(parts) - 1, -1, -1):
        prefix = ".".join(parts[:stop])
        matched = modules_that_match(model, Machine(prefix))
        if not matched:
            continue
        if "**" in parts[max(stop - 1, 0) : stop + 1]:
            rest = ".".join(parts[stop:]).removeprefix("**.")
            return f"{_matched(prefix, matched)}no path below ends in {rest!r}"
        names = [
            name
            for _, module in matched
            for table in ("_modules", *tables)
            for name, value in registry(module, table).items()
            if value is not None
        ]
        there = _there(names, parts[stop])
        return f"{_matched(prefix, matched)}nothing there matches {parts[stop]!r}; {there}"
    return "it is the model itself"


def _matched(prefix: str, matched: list[tuple[str, Any]]) -> str:
    if prefix in ("", "**"):
        return ""
    paths = ", ".join(path for path, _ in matched[:2]) + (", ..." if len(matched) > 2 else "")
    number = f"{len(matched)} module{'s' if len(matched) > 1 else ''}"
    return f"{prefix!r} matches {number} ({paths}), but "


def _there(names: list[str], wanted: str) -> str:
    each = list(dict.fromkeys(names))
    if not each:
        return "there are no names there"
    near = difflib.get_close_matches(wanted, each, 1)
    more = ", ..." if len(each) > _MOST_NAMES else ""
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"the names there are {', '.join(each[:_MOST_NAMES])}{more}{hint}"


def why_no_instance(model: Any, classes: Sequence[type]) -> str:
    """Says which classes there are, and which have the same name as one that was looked for."""
    there = Counter(type(m) for _, m in modules_that_match(model, Machine(["", "**"])))
    wanted = " or ".join(f"{cls.__module__}.{cls.__qualname__}" for cls in classes)
    names = {cls.__name__ for cls in classes}
    twins = [cls for cls in there if {base.__name__ for base in cls.__mro__} & names]
    text = f"no module is a {wanted}"
    if twins:
        twin = twins[0]
        return f"{text}; the model has {twin.__module__}.{twin.__qualname__}, another class"
    common = [f"{cls.__name__} ({number})" for cls, number in there.most_common(6)]
    return f"{text}; the classes there are {', '.join(common)}"
