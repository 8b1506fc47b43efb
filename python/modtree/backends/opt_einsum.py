# SPDX-License-Identifier: BSD-3-Clause
"""The package opt_einsum, which is not used here: its switches keep what they are told."""

from __future__ import annotations

from typing import Any

from modtree.backends._switches import of_module

__all__ = ["enabled", "flags", "get_opt_einsum", "is_available", "set_flags", "strategy"]

enabled = False
strategy: Any = None
flags, set_flags = of_module(globals(), "enabled", "strategy")


def is_available() -> bool:
    """False."""
    return False


def get_opt_einsum() -> None:
    """None."""
