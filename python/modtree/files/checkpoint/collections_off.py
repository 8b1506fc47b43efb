# SPDX-License-Identifier: BSD-3-Clause
"""No garbage collections while many objects are made that all stay."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["without_collections"]


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Of 300,000 entries, the collector would look at all that there are again and again, which
    takes longer than to make them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
