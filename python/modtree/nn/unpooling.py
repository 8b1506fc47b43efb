# SPDX-License-Identifier: BSD-3-Clause
"""Layers that undo pooling, pool by p-norms, or pool over windows at random distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.functional._common import tuple_of
from modtree.nn.pooling import Ints

__all__ = [
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
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


class _LPPoolNd(Module):
    _n: int
    norm_type: float
    ceil_mode: bool

    def __init__(
        self,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = getattr(F, f"lp_pool{self._n}d")
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The p-norm of each window over the last axis; see :class:`LPPool2d`.

    Args:
        norm_type: The order p of the norm.
        kernel_size: Extent of a window.
        stride: Distance of windows; by default their extent.
        ceil_mode: Also a last window that ends outside of the input.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: (N, C, L') or without N, ``L' = (L - kernel_size) // stride + 1``; with
          ``ceil_mode`` rounded up.
    """

    _n = 1


class LPPool2d(_LPPoolNd):
    """The p-norm of each window over the last two axes.

    Args:
        norm_type: The order p of the norm.
        kernel_size: Extent of a window.
        stride: Distance of windows; by default their extent.
        ceil_mode: Also a last window that ends outside of the input.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: (N, C, H', W') or without N, ``H' = (H - kernel_size) // stride + 1``, likewise
          for the others; with ``ceil_mode`` rounded up.
    """

    _n = 2


class LPPool3d(_LPPoolNd):
    """The p-norm of each window over the last three axes; see :class:`LPPool2d`.

    Args:
        norm_type: The order p of the norm.
        kernel_size: Extent of a window.
        stride: Distance of windows; by default their extent.
        ceil_mode: Also a last window that ends outside of the input.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: (N, C, D', H', W') or without N, ``D' = (D - kernel_size) // stride + 1``,
          likewise for the others; with ``ceil_mode`` rounded up.
    """

    _n = 3


class _FractionalMaxPoolNd(Module):
    _n: int
    return_indices: bool

    def __init__(
        self,
        kernel_size: Ints,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, self._n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        self.output_size = None if output_size is None else tuple_of(output_size, self._n)
        self.output_ratio = None if output_ratio is None else tuple_of(output_ratio, self._n)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        return getattr(F, f"fractional_max_pool{self._n}d")(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The largest values of windows at random distances (Graham, 2014), over the last two axes.

    Args:
        kernel_size: Extent of a window.
        output_size: How many windows there are.
        output_ratio: Their number as a share of the input's size, in place of ``output_size``.
        return_indices: Return also where the values stand, for :class:`MaxUnpool2d`.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: (N, C, *output_size) or without N.
    """

    _n = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The largest values of windows at random distances, over the last three axes.

    Args:
        kernel_size: Extent of a window.
        output_size: How many windows there are.
        output_ratio: Their number as a share of the input's size, in place of ``output_size``.
        return_indices: Return also where the values stand, for :class:`MaxUnpool3d`.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: (N, C, *output_size) or without N.
    """

    _n = 3
