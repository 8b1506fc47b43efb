# SPDX-License-Identifier: BSD-3-Clause
"""Constants that programs pass around: memory formats, the layout, and numbers."""

from __future__ import annotations

import math
from typing import Any

__all__ = [
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "e",
    "inf",
    "layout",
    "memory_format",
    "nan",
    "newaxis",
    "pi",
    "preserve_format",
    "strided",
]

inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
newaxis = None


class _Constant:
    """One of a few values, known by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"modtree.{self._name}"

    def __reduce__(self) -> str:
        return self._name

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class memory_format(_Constant):  # noqa: N801
    """The order of dimensions in memory, as an argument (`modtree.memory_formats` carries it
    out).
    """


class layout(_Constant):  # noqa: N801
    """How values are kept: all tensors are ``modtree.strided``."""

    def __eq__(self, other: object) -> bool:
        return self is other or other == self._name

    def __hash__(self) -> int:
        return hash(self._name)


strided = layout("strided")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
