# SPDX-License-Identifier: BSD-3-Clause
"""The package opt_einsum, which is not used here: its switches keep what they are told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["enabled", "flags", "get_opt_einsum", "is_available", "set_flags", "strategy"]

enabled = False
strategy: Any = None
_SWITCHES = frozenset(
    (
        "enabled",
        "strategy",
    )
)


def is_available() -> bool:
    """False."""
    return False


def get_opt_einsum() -> None:
    """None."""


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
