# SPDX-License-Identifier: BSD-3-Clause
"""What programs ask and tell the processor as if it were an accelerator."""

from __future__ import annotations

import contextlib
from typing import Any

from modtree import _imports

__all__ = [
    "current_device",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1"""
    return 1


def current_device() -> str:
    """cpu"""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Nothing: operations have ended when they return."""


def stream(stream: Any) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing."""
    return contextlib.nullcontext()


_imports.answer_for_missing(__name__)
