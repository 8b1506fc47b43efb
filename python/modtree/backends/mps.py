# SPDX-License-Identifier: BSD-3-Clause
"""Metal, which is not used here."""

from __future__ import annotations

__all__ = ["is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer"]


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: it is asked of Metal."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """False: it is asked of Metal."""
    return False
