# SPDX-License-Identifier: BSD-3-Clause
"""Text of several lines under a first one."""

from __future__ import annotations

__all__ = ["_addindent"]


def _addindent(s_: str, numSpaces: int) -> str:
    """The text with all lines but the first moved to the right."""
    return s_.replace("\n", "\n" + " " * numSpaces)
