# SPDX-License-Identifier: BSD-3-Clause
"""Pooling layers."""

from __future__ import annotations

from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.functional._common import tuple_of

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]

Ints = int | tuple[int, ...]


class _MaxPoolNd(Module):
    return_indices: bool
    ceil_mode: bool
    _n: int

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return getattr(F, f"max_pool{self._n}d")(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The largest value of each window over the last axis; see :class:`MaxPool2d`.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Positions around the input that never win, at most half a window.
        dilation: Distance of the elements of a window.
        return_indices: Return also where the values stand, see
            :func:`modtree.nn.functional.max_pool2d`.
        ceil_mode: Also a last window that ends outside of the input.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: (N, C, L') or without N, ``L' = (L + 2 * padding - dilation * (kernel_size -
          1) - 1) // stride + 1``; with ``ceil_mode`` rounded up.
    """

    _n = 1


class MaxPool2d(_MaxPoolNd):
    """The largest value of each window over the last two axes.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Places around the input that never win, at most half a window.
        dilation: Distance of the elements of a window.
        return_indices: Return also where the values stand, see
            :func:`modtree.nn.functional.max_pool2d`.
        ceil_mode: Also a last window that ends outside of the input.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: (N, C, H', W') or without N, ``H' = (H + 2 * padding - dilation * (kernel_size
          - 1) - 1) // stride + 1``, likewise for the others; with ``ceil_mode`` rounded up.
    """

    _n = 2


class MaxPool3d(_MaxPoolNd):
    """The largest value of each window over the last three axes; see :class:`MaxPool2d`.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Positions around the input that never win, at most half a window.
        dilation: Distance of the elements of a window.
        return_indices: Return also where the values stand, see
            :func:`modtree.nn.functional.max_pool2d`.
        ceil_mode: Also a last window that ends outside of the input.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: (N, C, D', H', W') or without N, ``D' = (D + 2 * padding - dilation *
          (kernel_size - 1) - 1) // stride + 1``, likewise for the others; with ``ceil_mode``
          rounded up.
    """

    _n = 3


class _AvgPoolNd(Module):
    kernel_size: Ints
    stride: Ints
    padding: Ints
    ceil_mode: bool
    count_include_pad: bool

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window over the last axis; see :class:`AvgPool2d`.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Zeros around the input, at most half a window.
        ceil_mode: Also a last window that ends outside of the input.
        count_include_pad: The zeros count in the mean.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: (N, C, L') or without N, ``L' = (L + 2 * padding - kernel_size) // stride +
          1``; with ``ceil_mode`` rounded up.
    """

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints = None,  # type: ignore[assignment]
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, 1)
        self.stride = tuple_of(stride if stride is not None else kernel_size, 1)
        self.padding = tuple_of(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _DividedAvgPool(_AvgPoolNd):
    _n: int

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, f"avg_pool{self._n}d")(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_DividedAvgPool):
    """The mean of each window over the last two axes.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Zeros around the input, at most half a window.
        ceil_mode: Also a last window that ends outside of the input.
        count_include_pad: The zeros count in the mean.
        divisor_override: Divide the sums by this number instead.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: (N, C, H', W') or without N, ``H' = (H + 2 * padding - kernel_size) // stride
          + 1``, likewise for the others; with ``ceil_mode`` rounded up.
    """

    _n = 2


class AvgPool3d(_DividedAvgPool):
    """The mean of each window over the last three axes; see :class:`AvgPool2d`.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Zeros around the input, at most half a window.
        ceil_mode: Also a last window that ends outside of the input.
        count_include_pad: The zeros count in the mean.
        divisor_override: Divide the sums by this number instead.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: (N, C, D', H', W') or without N, ``D' = (D + 2 * padding - kernel_size) //
          stride + 1``, likewise for the others; with ``ceil_mode`` rounded up.
    """

    _n = 3


class _AdaptivePoolNd(Module):
    _n: int

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_AdaptivePoolNd):
    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, f"adaptive_avg_pool{self._n}d")(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of ``output_size`` parts of the last axis.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: (N, C, *output_size) or without N.
    """

    _n = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of a grid of cells over the last two axes; ``output_size`` is a number or one for
    each axis, None keeps the input's.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: (N, C, *output_size) or without N.
    """

    _n = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of a grid of cells over the last three axes.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: (N, C, *output_size) or without N.
    """

    _n = 3


class _AdaptiveMaxPoolNd(_AdaptivePoolNd):
    return_indices: bool

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        pool = getattr(F, f"adaptive_max_pool{self._n}d")
        return pool(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest values of ``output_size`` parts of the last axis.

    Shape:
        - input: (N, C, L) or (C, L).
        - output: (N, C, *output_size) or without N.
    """

    _n = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest values of a grid of cells over the last two axes; ``output_size`` is a number or
    one for each axis, None keeps the input's.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: (N, C, *output_size) or without N.
    """

    _n = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest values of a grid of cells over the last three axes.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W).
        - output: (N, C, *output_size) or without N.
    """

    _n = 3
