# SPDX-License-Identifier: BSD-3-Clause
"""The library cuDNN, which is not used here: its switches keep what they are told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

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
_SWITCHES = frozenset(
    (
        "enabled",
        "benchmark",
        "benchmark_limit",
        "deterministic",
        "allow_tf32",
    )
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


@contextlib.contextmanager
def flags(**switches: Any) -> Iterator[None]:
    """A context in which switches have other values."""
    before = {name: globals()[name] for name in switches}
    set_flags(**switches)
    try:
        yield
    finally:
        globals().update(before)


def set_flags(**switches: Any) -> None:
    """Sets switches, by their names."""
    unknown = set(switches) - _SWITCHES
    if unknown:
        raise TypeError(f"{__name__} has no switch {min(unknown)!r}: {sorted(_SWITCHES)}")
    globals().update(switches)
