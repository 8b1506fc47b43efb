# SPDX-License-Identifier: BSD-3-Clause
"""The library cuDNN, which is not used here: its switches keep what they are told."""

from __future__ import annotations

from typing import Any

from modtree.backends._switches import of_module

__all__ = [
    "allow_tf32",
    "benchmark",
    "benchmark_limit",
    "deterministic",
    "enabled",
    "flags",
    "is_acceptable",
    "is_available",
    "set_flags",
    "version",
]

enabled = True
benchmark = False
benchmark_limit: Any = None
deterministic = False
allow_tf32 = True
flags, set_flags = of_module(
    globals(), "enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32"
)


def is_available() -> bool:
    """False."""
    return False


def version() -> int | None:
    """None."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """False."""
    return False
