# SPDX-License-Identifier: BSD-3-Clause
"""Names from files, and how many there are, as reports show them."""

from __future__ import annotations

__all__ = ["entries_text", "printable"]


def printable(text: str) -> str:
    """Text from a file on one line, without anything that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def entries_text(number: int) -> str:
    """``1 entry``, ``2,000 entries``."""
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
