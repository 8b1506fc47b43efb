# SPDX-License-Identifier: BSD-3-Clause
"""Keys that differ in their numbers alone, as one: ``layers.0-23.attn.q.weight``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

__all__ = ["folded", "ranges"]

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
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


def folded(keys: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Groups of keys that differ in their numbers alone, each with one text for all, in
    the order of their first keys.
    """
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for key in keys:
        shape = tuple(None if _NUMBER.fullmatch(part) else part for part in key.split("."))
        groups.setdefault(shape, []).append(key)
    return [(_text(group), group) for group in groups.values()]


def _text(keys: list[str]) -> str:
    if len(keys) == 1:
        return keys[0]
    columns = [set(parts) for parts in zip(*(key.split(".") for key in keys), strict=True)]
    varying = [column for column in columns if len(column) > 1]
    # Only where every combination is there do the ranges of the columns say which keys these are.
    exact = math.prod(len(column) for column in varying) == len(keys)
    parts: list[str] = []
    for column in columns:
        if len(column) == 1:
            parts += column
        else:
            parts.append(ranges(map(int, column)) if exact else "*")
    return ".".join(parts)
