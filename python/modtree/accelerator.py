# SPDX-License-Identifier: BSD-3-Clause
"""The accelerator of this machine, whichever it is: there is none."""

from __future__ import annotations

from typing import Any

from modtree import _imports
from modtree.cuda import (
    device_count,
    empty_cache,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    synchronize,
)

__all__ = [
    "current_accelerator",
    "device_count",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> Any:
    """None."""
    return None


_imports.answer_for_missing(__name__)
