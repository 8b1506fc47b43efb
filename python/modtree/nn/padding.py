# SPDX-License-Identifier: BSD-3-Clause
"""Padding layers: 1d, 2d and 3d of each kind, which take one number or (left, right, top, bottom,
...).
"""

from __future__ import annotations

from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.functional._common import for_axes, tuple_of
from modtree.numpy.tensor.tensor import Tensor

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


_SHAPE = """

    Shape:
        - input: (N, C, {sizes}) or (C, {sizes}).
        - output: the same with each padded axis longer by both of its paddings.
    """
_ANY_SHAPE = _SHAPE.replace("(N, C, {sizes}) or (C, {sizes})", "(..., {sizes})")
_CONSTANT = "``value`` around the {last}." + _ANY_SHAPE
_ZERO = "Zeros around the {last}." + _ANY_SHAPE
_REFLECTION = "The {last} mirrored at the ends, without repeating the borders." + _SHAPE
_REPLICATION = "The outer elements of the {last} repeated." + _SHAPE
_CIRCULAR = "The {last} continued from the other end." + _SHAPE


class _ZeroPad:
    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)  # type: ignore[call-arg]

    def extra_repr(self: Any) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantOfAxes, _ConstantPadNd):
    __doc__ = for_axes(1, _CONSTANT)
    _n = 1


class ConstantPad2d(_ConstantOfAxes, _ConstantPadNd):
    __doc__ = for_axes(2, _CONSTANT)
    _n = 2


class ConstantPad3d(_ConstantOfAxes, _ConstantPadNd):
    __doc__ = for_axes(3, _CONSTANT)
    _n = 3


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    __doc__ = for_axes(1, _ZERO)


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    __doc__ = for_axes(2, _ZERO)


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    __doc__ = for_axes(3, _ZERO)


class ReflectionPad1d(_OfAxes, _ReflectionPadNd):
    __doc__ = for_axes(1, _REFLECTION)
    _n = 1


class ReflectionPad2d(_OfAxes, _ReflectionPadNd):
    __doc__ = for_axes(2, _REFLECTION)
    _n = 2


class ReflectionPad3d(_OfAxes, _ReflectionPadNd):
    __doc__ = for_axes(3, _REFLECTION)
    _n = 3


class ReplicationPad1d(_OfAxes, _ReplicationPadNd):
    __doc__ = for_axes(1, _REPLICATION)
    _n = 1


class ReplicationPad2d(_OfAxes, _ReplicationPadNd):
    __doc__ = for_axes(2, _REPLICATION)
    _n = 2


class ReplicationPad3d(_OfAxes, _ReplicationPadNd):
    __doc__ = for_axes(3, _REPLICATION)
    _n = 3


class CircularPad1d(_OfAxes, _CircularPadNd):
    __doc__ = for_axes(1, _CIRCULAR)
    _n = 1


class CircularPad2d(_OfAxes, _CircularPadNd):
    __doc__ = for_axes(2, _CIRCULAR)
    _n = 2


class CircularPad3d(_OfAxes, _CircularPadNd):
    __doc__ = for_axes(3, _CIRCULAR)
    _n = 3
