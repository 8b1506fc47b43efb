# SPDX-License-Identifier: BSD-3-Clause
"""What programs ask and tell CUDA before they use it: there is none, and nothing to do."""

from __future__ import annotations

from typing import Any

from modtree import amp

__all__ = [
    "amp",
    "current_device",
    "device_count",
    "empty_cache",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "memory_allocated",
    "synchronize",
]


def is_available() -> bool:
    """False: NumPy's arrays are in main memory."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def current_device() -> int:
    """Raises RuntimeError: there is no device."""
    raise RuntimeError("NumPy tensors live in main memory only: there is no cuda device")


def manual_seed(seed: int) -> None:
    """Nothing: no device has a generator."""


def manual_seed_all(seed: int) -> None:
    """Nothing: no device has a generator."""


def empty_cache() -> None:
    """Nothing: no device has a cache."""


def synchronize(device: Any = None) -> None:
    """Nothing: operations have ended when they return."""


def memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """0."""
    return 0
