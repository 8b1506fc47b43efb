# SPDX-License-Identifier: BSD-3-Clause
"""The library oneDNN, which is not used here: its switches keep what they are told."""

from __future__ import annotations

from modtree.backends._switches import of_module

__all__ = ["allow_tf32", "deterministic", "enabled", "flags", "is_available", "set_flags"]

enabled = True
deterministic = False
allow_tf32 = True
flags, set_flags = of_module(globals(), "enabled", "deterministic", "allow_tf32")


def is_available() -> bool:
    """False."""
    return False
