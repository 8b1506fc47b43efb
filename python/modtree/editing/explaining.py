# SPDX-License-Identifier: BSD-3-Clause
"""Why a search found nothing."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from modtree.core.patterns import Machine, Patterns, expanded, split_parts, texts_of
from modtree.editing.walking import modules_that_match, registry

__all__ = ["why_no_instance", "why_no_match"]

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
