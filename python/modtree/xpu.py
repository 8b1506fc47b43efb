# SPDX-License-Identifier: BSD-3-Clause
"""What programs ask and tell Intel's accelerators: nothing is there, and nothing to do."""

from __future__ import annotations

from modtree import _imports
from modtree.cuda import (
    device_count,
    empty_cache,
    is_available,
    is_bf16_supported,
    is_initialized,
    manual_seed,
    manual_seed_all,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    reset_peak_memory_stats,
    seed,
    seed_all,
    synchronize,
)

__all__ = [
    "device_count",
    "empty_cache",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "synchronize",
]

_imports.answer_for_missing(__name__)
