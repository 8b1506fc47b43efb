# SPDX-License-Identifier: BSD-3-Clause
"""Padding layers: 1d, 2d and 3d of each kind, which take one number or (left, right, top, bottom,
...).
"""

from __future__ import annotations

from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.functional._common import tuple_of

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]

Ints = int | tuple[int, ...]


class _OfAxes:
    """The constructor of the layers for ``_n`` axes."""

    _n: int

    def __init__(self: Any, padding: Ints) -> None:
        super().__init__()
        self.padding = tuple_of(padding, 2 * self._n)


class _ConstantOfAxes:
    """The same with a value."""

    _n: int

    def __init__(self: Any, padding: Ints, value: float) -> None:
        super().__init__(value)  # type: ignore[call-arg]
        self.padding = tuple_of(padding, 2 * self._n)


class _ConstantPadNd(Module):
    value: float
    padding: tuple[int, ...]

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _PadNd(Module):
    padding: tuple[int, ...]
    _mode: str

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class _CircularPadNd(_PadNd):
    _mode = "circular"


class ConstantPad1d(_ConstantOfAxes, _ConstantPadNd):
    """``value`` around the last axis.

    Shape:
        - input: (..., L).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 1


class ConstantPad2d(_ConstantOfAxes, _ConstantPadNd):
    """``value`` around the last two axes.

    Shape:
        - input: (..., H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 2


class ConstantPad3d(_ConstantOfAxes, _ConstantPadNd):
    """``value`` around the last three axes.

    Shape:
        - input: (..., D, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 3


class _ZeroPad:
    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)  # type: ignore[call-arg]

    def extra_repr(self: Any) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Zeros around the last axis.

    Shape:
        - input: (..., L).
        - output: the same with each padded axis longer by both of its paddings.
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Zeros around the last two axes.

    Shape:
        - input: (..., H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Zeros around the last three axes.

    Shape:
        - input: (..., D, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """


class ReflectionPad1d(_OfAxes, _ReflectionPadNd):
    """The last axis mirrored at its ends, without repeating the borders.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 1


class ReflectionPad2d(_OfAxes, _ReflectionPadNd):
    """The last two axes mirrored at their ends, without repeating the borders.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 2


class ReflectionPad3d(_OfAxes, _ReflectionPadNd):
    """The last three axes mirrored at their ends, without repeating the borders.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 3


class ReplicationPad1d(_OfAxes, _ReplicationPadNd):
    """The outer elements of the last axis repeated.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 1


class ReplicationPad2d(_OfAxes, _ReplicationPadNd):
    """The outer elements of the last two axes repeated.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 2


class ReplicationPad3d(_OfAxes, _ReplicationPadNd):
    """The outer elements of the last three axes repeated.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 3


class CircularPad1d(_OfAxes, _CircularPadNd):
    """The last axis continued from its other end.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 1


class CircularPad2d(_OfAxes, _CircularPadNd):
    """The last two axes continued from their other ends.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 2


class CircularPad3d(_OfAxes, _CircularPadNd):
    """The last three axes continued from their other ends.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: the same with each padded axis longer by both of its paddings.
    """

    _n = 3
