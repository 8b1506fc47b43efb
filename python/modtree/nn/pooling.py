# SPDX-License-Identifier: BSD-3-Clause
"""Layers of pooling, and of max pooling undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn.functional._common import for_axes, tuple_of, without_argument
from modtree.numpy.tensor.tensor import Tensor

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
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
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


_MAX_POOL = """The largest value of each window over the {last}.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Positions around the input that never win, at most half a window.
        dilation: Distance of the elements of a window.
        return_indices: Return also where the values are, see
            :func:`modtree.nn.functional.max_pool{n}d`.
        ceil_mode: Also a last window that ends outside of the input.

    Shape:
        - input: (N, C, {sizes}) or (C, {sizes}).
        - output: (N, C, {results}) or without N, ``{first}' = ({first} + 2 * padding - dilation *
          (kernel_size - 1) - 1) // stride + 1``{others}; with ``ceil_mode`` rounded up.
    """


class MaxPool1d(_MaxPoolNd):
    __doc__ = for_axes(1, _MAX_POOL)
    _n = 1


class MaxPool2d(_MaxPoolNd):
    __doc__ = for_axes(2, _MAX_POOL)
    _n = 2


class MaxPool3d(_MaxPoolNd):
    __doc__ = for_axes(3, _MAX_POOL)
    _n = 3


class _AvgPoolNd(Module):
    kernel_size: Ints
    stride: Ints
    padding: Ints
    ceil_mode: bool
    count_include_pad: bool

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


_AVG_POOL = """The mean of each window over the {last}.

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows; by default their extent.
        padding: Zeros around the input, at most half a window.
        ceil_mode: Also a last window that ends outside of the input.
        count_include_pad: The zeros count in the mean.
        divisor_override: Divide the sums by this number instead.

    Shape:
        - input: (N, C, {sizes}) or (C, {sizes}).
        - output: (N, C, {results}) or without N, ``{first}' = ({first} + 2 * padding -
          kernel_size) // stride + 1``{others}; with ``ceil_mode`` rounded up.
    """


class AvgPool1d(_AvgPoolNd):
    __doc__ = for_axes(1, without_argument(_AVG_POOL, "divisor_override"))

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
    __doc__ = for_axes(2, _AVG_POOL)
    _n = 2


class AvgPool3d(_DividedAvgPool):
    __doc__ = for_axes(3, _AVG_POOL)
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


_PARTS = """ ``output_size`` parts of the {last}: a number, or one for each axis, where None
    keeps the input's.

    Shape:
        - input: (N, C, {sizes}) or (C, {sizes}).
        - output: (N, C, *output_size) or without N.
    """


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    __doc__ = for_axes(1, "The means of" + _PARTS)
    _n = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    __doc__ = for_axes(2, "The means of" + _PARTS)
    _n = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    __doc__ = for_axes(3, "The means of" + _PARTS)
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
    __doc__ = for_axes(1, "The largest values of" + _PARTS)
    _n = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    __doc__ = for_axes(2, "The largest values of" + _PARTS)
    _n = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    __doc__ = for_axes(3, "The largest values of" + _PARTS)
    _n = 3


# -- pooling undone --------------------------------------------------------------------------------


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
        """Puts the values at the indices that the pooling returned.

        Example:
            >>> pool, unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
            >>> values, indices = pool(mt.arange(16.0).reshape(1, 4, 4))
            >>> unpool(values, indices)[0]
            tensor([[ 0.,  0.,  0.,  0.],
                    [ 0.,  5.,  0.,  7.],
                    [ 0.,  0.,  0.,  0.],
                    [ 0., 13.,  0., 15.]])
        """
        unpool = getattr(F, f"max_unpool{self._n}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


_MAX_UNPOOL = """Puts maxima back where :class:`MaxPool{n}d` found them; everything else is zero.

    Args:
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.

    Shape:
        - input and indices: (N, C, {sizes}) or (C, {sizes}).
        - output: (N, C, {results}) or without N, ``{first}' = ({first} - 1) * stride -
          2 * padding + kernel_size``{others}, or as ``output_size`` says.
    """


class MaxUnpool1d(_MaxUnpoolNd):
    __doc__ = for_axes(1, _MAX_UNPOOL)
    _n = 1


class MaxUnpool2d(_MaxUnpoolNd):
    __doc__ = for_axes(2, _MAX_UNPOOL)
    _n = 2


class MaxUnpool3d(_MaxUnpoolNd):
    __doc__ = for_axes(3, _MAX_UNPOOL)
    _n = 3
