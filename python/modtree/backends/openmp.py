# SPDX-License-Identifier: BSD-3-Clause
"""The library OpenMP, which is not used here."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False."""
    return False
