# SPDX-License-Identifier: BSD-3-Clause
"""Numbers, shapes, lists and names from files as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_LONGEST_SHAPE = 44


def count_text(count: int) -> str:
    """``1,234``; a dash for nothing."""
    return f"{count:,}" if count else "-"


def printable(text: str) -> str:
    """Text from a file on one line, without anything that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def entries_text(number: int) -> str:
    """``1 entry``, ``2,000 entries``."""
    return f"{number:,} {'entry' if number == 1 else 'entries'}"


def noun(count: int, singular: str) -> str:
    """``1 module``, ``2 modules``."""
    return f"{count:,} {singular if count == 1 else singular + 's'}"


def bytes_text(count: int) -> str:
    """``512 B``, ``1.5 KiB``, ``97.8 MiB``; a dash for nothing."""
    if not count:
        return "-"
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 999.95 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


def share_text(part: int, whole: int) -> str:
    """``37%``; what is not all is never 100%, what is not nothing never 0%."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1%"
    if 99 < percent < 100:
        return ">99%"
    return f"{percent:.0f}%"


def seconds_text(seconds: float | None) -> str:
    """``1.234 s``, ``56.7 ms``, ``8.9 us``; a dash for what was not measured."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale or unit == "us":
            break
    value = seconds / scale
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"


def shape_text(spec: Any, longest: int = _LONGEST_SHAPE) -> str:
    """A shape as ``(1, 10)``, several as ``[(1, 10), (2, 3)]``, named ones as ``{out: (1, 10)}``.

    Args:
        spec: What :func:`modtree.inspection.forward.describe` made of a result; None for nothing.
        longest: From so many characters on the rest is left out.
    """
    if isinstance(spec, tuple):
        return str(spec)
    if isinstance(spec, dict):
        parts: Iterable[str] = (f"{k}: {shape_text(v, longest)}" for k, v in spec.items())
        return _joined("{", list(parts), "}", longest)
    if isinstance(spec, list):
        return _joined("[", [shape_text(part, longest) for part in spec], "]", longest)
    return "-"


def _joined(opening: str, parts: list[str], closing: str, longest: int) -> str:
    text = opening + ", ".join(parts) + closing
    shown = len(parts)
    while len(text) > longest and shown > 1:
        shown -= 1
        left = len(parts) - shown
        text = opening + ", ".join(parts[:shown]) + f", +{left}" + closing
    return text
