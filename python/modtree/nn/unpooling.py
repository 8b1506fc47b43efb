# SPDX-License-Identifier: BSD-3-Clause
"""Layers that undo pooling."""

from __future__ import annotations

from collections.abc import Sequence

from modtree._tensor.tensor import Tensor
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.functional._common import tuple_of
from modtree.nn.pooling import Ints

__all__ = [
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _MaxUnpoolNd(Module):
    _n: int

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, self._n)
        self.stride = tuple_of(stride if stride is not None else kernel_size, self._n)
        self.padding = tuple_of(padding, self._n)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        unpool = getattr(F, f"max_unpool{self._n}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts maxima back where :class:`MaxPool1d` found them; see :class:`MaxUnpool2d`.

    Args:
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.

    Shape:
        - input and indices: (N, C, L) or (C, L).
        - output: (N, C, L') or without N, ``L' = (L - 1) * stride - 2 * padding + kernel_size``, or
          as ``output_size`` says.
    """

    _n = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts maxima back where :class:`MaxPool2d` found them; everything else is zero.

    Args:
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.

    Shape:
        - input and indices: (N, C, H, W) or (C, H, W).
        - output: (N, C, H', W') or without N, ``H' = (H - 1) * stride - 2 * padding +
          kernel_size``, or as ``output_size`` says.

    Example:
        >>> pool, unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
        >>> values, indices = pool(mt.arange(16.0).reshape(1, 4, 4))
        >>> unpool(values, indices)[0]
        tensor([[ 0.,  0.,  0.,  0.],
                [ 0.,  5.,  0.,  7.],
                [ 0.,  0.,  0.,  0.],
                [ 0., 13.,  0., 15.]])
    """

    _n = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts maxima back where :class:`MaxPool3d` found them; see :class:`MaxUnpool2d`.

    Args:
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.

    Shape:
        - input and indices: (N, C, D, H, W) or (C, D, H, W).
        - output: (N, C, D', H', W') or without N, ``D' = (D - 1) * stride - 2 * padding +
          kernel_size``, or as ``output_size`` says.
    """

    _n = 3
