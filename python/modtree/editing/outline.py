# SPDX-License-Identifier: BSD-3-Clause
"""The outline of a selection: the branches of a tree that lead to what is selected."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from modtree.core.families import family_of
from modtree.editing.walking import registry, shape_of

__all__ = ["outline"]

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
