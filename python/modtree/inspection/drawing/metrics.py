# SPDX-License-Identifier: BSD-3-Clause
"""How wide a text is in a picture, without a font at hand: the pictures use a monospaced one, where
every letter has one width.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["ellipsis", "is_certain", "text_width"]

# In parts of the font size. Monospaced fonts have 0.55 (Consolas) to 0.602 (DejaVu, Menlo).
_ADVANCE = 0.605
# Characters that these fonts lack come from others: CJK ones are square, emoji wider than that.
_WIDE, _EMOJI = 1.0, 1.3

# What all of them have: ASCII, and the signs that the drawings write themselves.
_CERTAIN = re.compile(r"[ -~×·…\N{NO-BREAK SPACE}]*\Z")


def text_width(text: str, size: float) -> float:
    """The width of a line of text in pixels."""
    if _CERTAIN.match(text):
        return len(text) * _ADVANCE * size
    return sum(map(_advance, text)) * size


def _advance(char: str) -> float:
    if _CERTAIN.match(char):
        return _ADVANCE
    category = unicodedata.category(char)
    if category in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return _EMOJI if category in ("So", "Sk", "Cn") else _WIDE
    return _EMOJI if category in ("So", "Cn") else _ADVANCE


def is_certain(text: str) -> bool:
    """True if every monospaced font has all of it, so that the width holds whatever the font."""
    return _CERTAIN.match(text) is not None


def ellipsis(text: str, room: float, size: float) -> str:
    """As much of the text as fits into so many pixels, with an ellipsis where that is not all."""
    if text_width(text, size) <= room:
        return text
    left = room - _ADVANCE * size
    kept = 0
    for kept, char in enumerate(text):  # noqa: B007  # what was kept is wanted behind the loop
        left -= _advance(char) * size
        if left < 0:
            break
    while kept and _advance(text[kept - 1]) == 0:  # a joiner or an accent without what it is for
        kept -= 1
    return f"{text[:kept].rstrip()}…"
