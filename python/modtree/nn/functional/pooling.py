# SPDX-License-Identifier: BSD-3-Clause
"""Pooling: windows, or a given number of parts, replaced by their maximum or mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np

from modtree._C import as_dtype
from modtree.nn.functional._common import (
    Sizes,
    for_axes,
    named,
    need_tensor,
    pool_sizes,
    whole_size,
    without_argument,
)
from modtree.numpy.argument_types import Ints
from modtree.numpy.ops import pool as pool_ops
from modtree.numpy.ops import resample as resample_ops
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
]

if TYPE_CHECKING:

    class _MaxPool(Protocol):
        @overload
        def __call__(
            self,
            input: Tensor,
            kernel_size: Ints,
            stride: Ints | None = None,
            padding: Ints = 0,
            dilation: Ints = 1,
            ceil_mode: bool = False,
            return_indices: Literal[False] = False,
        ) -> Tensor: ...
        @overload
        def __call__(
            self,
            input: Tensor,
            kernel_size: Ints,
            stride: Ints | None = None,
            padding: Ints = 0,
            dilation: Ints = 1,
            ceil_mode: bool = False,
            *,
            return_indices: Literal[True],
        ) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(
            self,
            input: Tensor,
            kernel_size: Ints,
            stride: Ints | None = None,
            padding: Ints = 0,
            dilation: Ints = 1,
            ceil_mode: bool = False,
            *,
            return_indices: bool,
        ) -> Any: ...

    class _MaxPoolWithIndices(Protocol):
        def __call__(
            self,
            input: Tensor,
            kernel_size: Ints,
            stride: Ints | None = None,
            padding: Ints = 0,
            dilation: Ints = 1,
            ceil_mode: bool = False,
            return_indices: bool = False,
        ) -> tuple[Tensor, Tensor]: ...

    class _AvgPool(Protocol):
        def __call__(
            self,
            input: Tensor,
            kernel_size: Ints,
            stride: Ints | None = None,
            padding: Ints = 0,
            ceil_mode: bool = False,
            count_include_pad: bool = True,
            divisor_override: int | None = None,
        ) -> Tensor: ...

    class _AdaptiveAvgPool(Protocol):
        def __call__(self, input: Tensor, output_size: Ints) -> Tensor: ...

    class _AdaptiveMaxPool(Protocol):
        @overload
        def __call__(
            self, input: Tensor, output_size: Ints, return_indices: Literal[False] = False
        ) -> Tensor: ...
        @overload
        def __call__(
            self, input: Tensor, output_size: Ints, *, return_indices: Literal[True]
        ) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, input: Tensor, output_size: Ints, *, return_indices: bool) -> Any: ...

    class _AdaptiveMaxPoolWithIndices(Protocol):
        def __call__(
            self, input: Tensor, output_size: Ints, return_indices: bool = False
        ) -> tuple[Tensor, Tensor]: ...


def _check_input(name: str, n: int, input: Tensor) -> None:
    need_tensor(name, input)
    if name == "avg_pool2d" and input.dim() < 3:
        raise IndexError(f"{name}: expected an image (C, H, W), but got shape {list(input.shape)}")
    if input.dim() not in (n + 1, n + 2) or 0 in input.shape[-n - 1 :]:
        raise RuntimeError(
            f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch "
            f"size for input, but got:{list(input.shape)}"
        )


def _window_sizes(
    name: str, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    kernel = pool_sizes(name, "kernel_size", kernel_size, n)
    steps = (
        kernel
        if stride is None or (isinstance(stride, (tuple, list)) and not stride)
        else pool_sizes(name, "stride", stride, n)
    )
    pads, spread = (
        pool_sizes(name, "padding", padding, n),
        pool_sizes(name, "dilation", dilation, n),
    )
    if min(kernel) < 1:
        raise RuntimeError(
            f"{name}: kernel_size should be greater than zero, but got {kernel_size}"
        )
    if min(steps) < 1:
        raise RuntimeError(f"{name}: stride should not be zero, it must be positive: got {stride}")
    if min(spread) < 1:
        raise RuntimeError(f"{name}: dilation should be greater than zero, but got {dilation}")
    for k, p, d in zip(kernel, pads, spread, strict=True):
        if p < 0:
            raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {p}")
        if p > k // 2:
            size = "effective kernel size" if d == 1 else "kernel size, whatever the dilation"
            raise RuntimeError(
                f"{name}: pad should be at most half of {size}, but got pad={p}, kernel_size={k} "
                f"and dilation={d}"
            )
    return kernel, steps, pads, spread


def _max_pool(
    name: str,
    n: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    both: bool,
) -> Any:
    _check_input(name, n, input)
    sizes = _window_sizes(name, n, kernel_size, stride, padding, dilation)
    if input.dtype == as_dtype("bool") or (n == 1 and not both and not input.is_floating_point()):
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype}: expected a floating dtype'
        )
    operation = pool_ops.max_pool_with_indices if both else pool_ops.max_pool
    return operation(input, *sizes, bool(ceil_mode))


_MAX_POOL = """The largest value of each window over the {last}.

    Args:
        input: (N, C, {sizes}), or without N.
        kernel_size: Extent of a window.
        stride: Distance of windows; by default their extent.
        padding: Positions around the input that never win, at most half a window.
        dilation: Distance of the elements of a window.
        ceil_mode: Also a last window that ends outside of the input.
        return_indices: Return ``(values, indices)``; the indices (int64) count within
            the flattened plane of the input.
    """


def _with_indices(name: str, text: str, function: Any, with_indices: Any) -> Any:
    """Names a function and the one that always returns the indices."""
    arguments = text.partition("\n")[2]
    return (
        named(function, name, text),
        named(
            with_indices,
            f"{name}_with_indices",
            f":func:`{name}` with ``return_indices=True``.\n{arguments}",
        ),
    )


def _make_max_pool(n: int) -> tuple[_MaxPool, _MaxPoolWithIndices]:
    name = f"max_pool{n}d"

    def max_pool_with_indices(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        return _max_pool(name, n, input, kernel_size, stride, padding, dilation, ceil_mode, True)

    def max_pool(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        return _max_pool(
            name, n, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
        )

    return _with_indices(name, for_axes(n, _MAX_POOL), max_pool, max_pool_with_indices)


max_pool1d, max_pool1d_with_indices = _make_max_pool(1)
max_pool2d, max_pool2d_with_indices = _make_max_pool(2)
max_pool3d, max_pool3d_with_indices = _make_max_pool(3)


def _avg_pool(
    n: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    name = f"avg_pool{n}d"
    _check_input(name, n, input)
    kernel, steps, pads, _ = _window_sizes(name, n, kernel_size, stride, padding, 1)
    # Without the padding, and of three axes only.
    if n == 3 and any(size < k for size, k in zip(input.shape[-3:], kernel, strict=True)):
        raise RuntimeError(
            f"{name}: input {list(input.shape)} smaller than kernel size {list(kernel)}"
        )
    if divisor_override == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    return pool_ops.avg_pool(
        input, kernel, steps, pads, bool(ceil_mode), bool(count_include_pad), divisor_override
    )


_AVG_POOL = """The mean of each window over the {last}.

    Args:
        input: (N, C, {sizes}), or without N; of a floating dtype, or int64.
        kernel_size: Extent of a window.
        stride: Distance of windows; by default their extent.
        padding: Zeros around the input, at most half a window.
        ceil_mode: Also a last window that ends outside of the input.
        count_include_pad: The zeros count in the mean.
        divisor_override: Divide the sums by this number instead.
    """


def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


avg_pool1d.__doc__ = for_axes(1, without_argument(_AVG_POOL, "divisor_override"))


def _make_avg_pool(n: int) -> _AvgPool:
    def avg_pool(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        return _avg_pool(
            n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )

    return named(avg_pool, f"avg_pool{n}d", for_axes(n, _AVG_POOL))


avg_pool2d, avg_pool3d = map(_make_avg_pool, (2, 3))


# -- a given number of parts -----------------------------------------------------------------------


def _parts(name: str, n: int, input: Tensor, output_size: Any, no_channels: bool = False) -> Sizes:
    """The wanted sizes; None means the size of the input.

    Args:
        no_channels: There may be 0 of them.
    """
    need_tensor(name, input)
    if n > 1 and isinstance(output_size, (tuple, list)) and input.dim() <= len(output_size):
        raise ValueError(f"{name}(): Input dimension should be at least {len(output_size) + 1}")
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}"
        )
    first = -n if no_channels else 1
    if 0 in input.shape[first:]:
        axis = list(input.shape).index(0, first)
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {list(input.shape)} with dimension {axis} being empty"
        )
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if output_size is None:
        raise TypeError(f"{name}(): expected output_size to be whole numbers, got None")
    if len(wanted) != n:
        raise RuntimeError(f"{name}: output_size must be {n} (got {len(wanted)} sizes)")
    sizes = tuple(
        have if want is None else whole_size(name, "output_size", want)
        for want, have in zip(wanted, input.shape[-n:], strict=True)
    )
    if min(sizes) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0")
    return sizes


def _adaptive_avg_pool(name: str, n: int, input: Tensor, output_size: Any) -> Tensor:
    need_tensor(name, input)
    if n > 1 and input.dim() <= n and output_size == 1:  # with or without channels
        return input.mean(tuple(range(-1, -n - 1, -1)), keepdim=True)
    counts = _parts(name, n, input, output_size, no_channels=n < 3)
    if not input.is_floating_point() and not (input.is_complex() and set(counts) == {1}):
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype}: a mean needs a floating dtype, convert '
            f"with .float()"
        )
    sizes = tuple(input.shape[-n:])
    if 0 not in counts and not any(size % count for size, count in zip(sizes, counts, strict=True)):
        kernel = tuple(size // count for size, count in zip(sizes, counts, strict=True))
        return _equal_parts(input, counts, kernel)
    first = input.dim() - n
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True), first):
        taps, weights = _mean_taps(size, count)
        input = resample_ops.resample(input, axis, taps, weights, size)
    return input


def _equal_parts(input: Tensor, counts: Sizes, kernel: Sizes) -> Tensor:
    n = len(counts)
    lead = tuple(input.shape[:-n])
    split = [e for pair in zip(counts, kernel, strict=True) for e in pair]
    first = len(lead)
    return input.reshape(*lead, *split).mean(tuple(first + 2 * i + 1 for i in range(n)))


def _mean_taps(size: int, count: int) -> tuple[Any, Any]:
    """Which elements each part consists of, and their shares. Shorter parts are filled up with
    their last element, which has its share in pieces: 0 times infinity would be NaN.
    """
    i = np.arange(count)
    begin, end = i * size // max(count, 1), -((i + 1) * size // -max(count, 1))
    reach = np.arange((end - begin).max() if count else 1)[:, None]
    taps = np.minimum(begin + reach, end - 1)
    pieces = (taps == end - 1).sum(0)
    return taps, np.where(taps < end - 1, 1.0, 1.0 / pieces) / (end - begin)


_PARTS = """Splits the {last} into ``output_size`` parts and takes their {values}.

    Args:
        input: (N, C, {sizes}), or without N.
        output_size: One number, or one for each axis; None keeps the input's.
        return_indices: Return ``(values, indices)``, int64 within the plane of the input.
    """


def _make_adaptive_avg_pool(n: int) -> _AdaptiveAvgPool:
    name = f"adaptive_avg_pool{n}d"

    def adaptive_avg_pool(input: Tensor, output_size: Ints) -> Tensor:
        return _adaptive_avg_pool(name, n, input, output_size)

    text = without_argument(_PARTS, "return_indices")
    return named(adaptive_avg_pool, name, for_axes(n, text, values="means"))


def _make_adaptive_max_pool(n: int) -> tuple[_AdaptiveMaxPool, _AdaptiveMaxPoolWithIndices]:
    name = f"adaptive_max_pool{n}d"

    def adaptive_max_pool_with_indices(
        input: Tensor, output_size: Ints, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        values, indices = pool_ops.adaptive_max_pool(input, _parts(name, n, input, output_size))
        return values, indices

    def adaptive_max_pool(input: Tensor, output_size: Ints, return_indices: bool = False) -> Any:
        both = adaptive_max_pool_with_indices(input, output_size)
        return both if return_indices else both[0]

    text = for_axes(n, _PARTS, values="largest values")
    return _with_indices(name, text, adaptive_max_pool, adaptive_max_pool_with_indices)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(
    _make_adaptive_avg_pool, (1, 2, 3)
)
adaptive_max_pool1d, adaptive_max_pool1d_with_indices = _make_adaptive_max_pool(1)
adaptive_max_pool2d, adaptive_max_pool2d_with_indices = _make_adaptive_max_pool(2)
adaptive_max_pool3d, adaptive_max_pool3d_with_indices = _make_adaptive_max_pool(3)
