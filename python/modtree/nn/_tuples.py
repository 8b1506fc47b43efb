# SPDX-License-Identifier: BSD-3-Clause
"""Constructor arguments that are one value or one for each axis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def tuple_of(value: Any, n: int) -> tuple[Any, ...]:
    """A sequence as it is, one value ``n`` times."""
    return tuple(value) if isinstance(value, Iterable) else (value,) * n
