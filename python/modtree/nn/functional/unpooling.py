# SPDX-License-Identifier: BSD-3-Clause
"""Pooling undone, pooling by p-norms, and maxima over windows at random distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from modtree._argument_types import Ints
from modtree._C import as_tuple
from modtree._ops import unpool as unpool_ops
from modtree._tensor.random_creation import rand
from modtree._tensor.tensor import Tensor
from modtree.nn.functional._common import Sizes, need_tensor, pool_sizes, tuple_of
from modtree.nn.functional.activation import relu
from modtree.nn.functional.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

if TYPE_CHECKING:

    class _LpPool(Protocol):
        def __call__(
            self,
            input: Tensor,
            norm_type: float,
            kernel_size: Ints,
            stride: Ints | None = None,
            ceil_mode: bool = False,
        ) -> Tensor: ...


__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]


# -- maxima put back -------------------------------------------------------------------------------


def _unpooled_sizes(
    name: str, input: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, wanted: Any
) -> Sizes:
    """What pooling had, or ``wanted`` where that is possible."""
    n = len(kernel)
    usual = [
        (size - 1) * s + k - 2 * p
        for size, k, s, p in zip(input.shape[-n:], kernel, stride, padding, strict=True)
    ]
    if wanted is None:
        return tuple(usual)
    sizes = as_tuple(wanted)
    if len(sizes) == n + 2:
        sizes = sizes[2:]
    if len(sizes) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a "
            f"length of '{len(sizes)}'"
        )
    for d, (size, default, s) in enumerate(zip(sizes, usual, stride, strict=True)):
        if not default - s < size < default + s:
            raise ValueError(
                f'invalid output_size "{list(sizes)}" (dim {d} must be between {default - s} and '
                f"{default + s})"
            )
    return tuple(map(int, sizes))


def _first(value: Any, n: int) -> Any:
    return value[:n] if isinstance(value, (tuple, list)) else value


def _max_unpool(
    n: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Tensor:
    name = f"max_unpool{n}d"
    need_tensor(name, input, indices)
    if isinstance(kernel_size, (tuple, list)) and len(kernel_size) != n:
        raise RuntimeError(f"{name}: expected {n} sizes of a window, got {list(kernel_size)}")
    kernel = pool_sizes(name, "kernel_size", kernel_size, n)
    if n < 3:  # torch counts them in three dimensions alone
        stride, padding = (_first(value, n) for value in (stride, padding))
    steps = kernel if stride is None else pool_sizes(name, "stride", stride, n)
    pads = pool_sizes(name, "padding", padding, n)
    sizes: Sizes = ()
    if input.dim() >= n:
        sizes = _unpooled_sizes(name, input, kernel, steps, pads, output_size)
        if min(sizes) < 0:
            raise ValueError(f"{name}(): the result would have negative sizes: {list(sizes)}")
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}(): expected a {n + 1}D or {n + 2}D tensor, but got a tensor with "
            f"{input.dim()} dimensions"
        )
    if indices.is_floating_point() or indices.is_complex() or indices.element_size() != 8:
        raise RuntimeError(
            f"{name}(): elements in indices should be type int64 but got: {indices.dtype}"
        )
    if indices.shape != input.shape:
        raise RuntimeError(
            f"{name}(): expected shape of indices to be that of the input "
            f"({list(input.shape)}) but got {list(indices.shape)}"
        )
    if 0 in input.shape[-n - 1 + (input.dim() == n + 1) :]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got "
            f"{list(input.shape)}"
        )
    if min(sizes) < 0:
        raise ValueError(
            f"{name}(): expected sizes of at least 0 for the result, got {list(sizes)}"
        )
    return unpool_ops.max_unpool(input, indices, sizes)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Puts maxima back where :func:`max_pool1d` found them; see :func:`max_unpool2d`.

    Args:
        input: (N, C, L), or without N.
        indices: Where each value goes, of the same shape, as ``return_indices=True`` gives them.
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.
        output_size: The size before the pooling, where several give the same after it.
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Puts maxima back where :func:`max_pool2d` found them; everything else is zero.

    Args:
        input: (N, C, H, W), or without N.
        indices: Where each value goes, of the same shape, as ``return_indices=True`` gives them.
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.
        output_size: The size before the pooling, (H, W) or with N and C, where several give the
            same after it.
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Puts maxima back where :func:`max_pool3d` found them; see :func:`max_unpool2d`.

    Args:
        input: (N, C, D, H, W), or without N.
        indices: Where each value goes, of the same shape, as ``return_indices=True`` gives them.
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.
        output_size: The size before the pooling, (D, H, W) or with N and C.
    """
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


# -- p-norms ---------------------------------------------------------------------------------------


def _lp_pool(
    pool: Any, n: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil: bool
) -> Tensor:
    need_tensor(f"lp_pool{n}d", input)
    count = 1
    for k in pool_sizes(f"lp_pool{n}d", "kernel_size", kernel_size, n):
        count *= k
    if math.isinf(norm_type):
        sign = 1 if norm_type > 0 else -1  # the smallest size is minus the largest of their minus
        largest = (max_pool1d, max_pool2d, max_pool3d)[n - 1]
        return largest(input.abs() * sign, kernel_size, stride, 0, 1, ceil) * sign
    mean = pool(input.pow(norm_type), kernel_size, stride, 0, ceil)
    # A sum below 0, of an odd power, has the root of its absolute value.
    return (mean.sign() * relu(mean.abs())).mul(count).pow(1.0 / norm_type)


def _lp_pool_function(n: int, pool: Any, axes: str, sizes: str, which: str) -> _LpPool:
    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        return _lp_pool(pool, n, input, norm_type, kernel_size, stride, ceil_mode)

    lp_pool.__name__ = lp_pool.__qualname__ = f"lp_pool{n}d"
    lp_pool.__doc__ = f"""The p-norm of each window over the last {axes}{which}

    Args:
        input: (N, C, {sizes}), or without N.
        norm_type: The order p of the norm.
        kernel_size: Extent of a window.
        stride: Distance of windows; by default their extent.
        ceil_mode: Also a last window that ends outside of the input.
    """
    return lp_pool


_SEE = "; see :func:`lp_pool2d`."
_ROOT = ": the p-th root of the sum of p-th powers."
lp_pool1d = _lp_pool_function(1, avg_pool1d, "axis", "L", _SEE)
lp_pool2d = _lp_pool_function(2, avg_pool2d, "two axes", "H, W", _ROOT)
lp_pool3d = _lp_pool_function(3, avg_pool3d, "three axes", "D, H, W", _SEE)


# -- windows at random distances -------------------------------------------------------------------


def _fractional(
    n: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{n}d"
    need_tensor(name, input)
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: {list(input.shape)}"
        )
    kernel = pool_sizes(name, "kernel_size", kernel_size, n)
    sizes = tuple(input.shape[-n:])
    if output_size is None:
        ratios = tuple_of(output_ratio, n)
        output_size = [int(size * r) for size, r in zip(sizes, ratios, strict=True)]
    counts = pool_sizes(name, "output_size", output_size, n)
    for size, count, k in zip(sizes, counts, kernel, strict=True):
        # In three dimensions torch does not take windows that all begin at their own place.
        if count + k - 1 > size - (n == 3) or k < 1 or count < 0:
            raise RuntimeError(
                f"{name}(): {count} windows of {k} are too large relative to an input of {size}"
            )
    lead = tuple(input.shape[:2]) if input.dim() == n + 2 else (1, input.shape[0])
    if samples is None:
        samples = rand(*lead, n, dtype=input.dtype, device=input.device)
    need_tensor(name, samples)
    if tuple(samples.shape) != (*lead, n):
        raise RuntimeError(
            f"{name}(): expected _random_samples of shape {[*lead, n]}, got {list(samples.shape)}"
        )
    return unpool_ops.fractional_max_pool(input, samples.to(input.dtype), kernel, counts)


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`fractional_max_pool2d` with ``return_indices=True``.

    Args:
        input: (N, C, H, W), or without N.
        kernel_size: Extent of a window.
        output_size: How many windows.
        output_ratio: Their number as a share of the input's size.
        return_indices: Without effect: it always does.
    """
    return _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)


@overload
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: Literal[False] = False,
    _random_samples: Tensor | None = None,
) -> Tensor: ...
@overload
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    *,
    return_indices: Literal[True],
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    *,
    return_indices: bool,
    _random_samples: Tensor | None = None,
) -> Any: ...
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest values of windows at random distances (Graham, 2014): any number of them, over
    the last two axes.

    Args:
        input: (N, C, H, W), or without N.
        kernel_size: Extent of a window.
        output_size: How many windows.
        output_ratio: Their number as a share of the input's size, from 0 to 1.
        return_indices: Return ``(values, indices)``; the indices (int64) count within the flattened
            plane of the input.

    Raises:
        ValueError: neither ``output_size`` nor ``output_ratio`` is given.
    """
    found = _fractional(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`fractional_max_pool3d` with ``return_indices=True``.

    Args:
        input: (N, C, D, H, W), or without N.
        kernel_size: Extent of a window.
        output_size: How many windows.
        output_ratio: Their number as a share of the input's size.
        return_indices: Without effect: it always does.
    """
    return _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)


@overload
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: Literal[False] = False,
    _random_samples: Tensor | None = None,
) -> Tensor: ...
@overload
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    *,
    return_indices: Literal[True],
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    *,
    return_indices: bool,
    _random_samples: Tensor | None = None,
) -> Any: ...
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """:func:`fractional_max_pool2d` over the last three axes.

    Args:
        input: (N, C, D, H, W), or without N.
        kernel_size: Extent of a window.
        output_size: How many windows.
        output_ratio: Their number as a share of the input's size, from 0 to 1.
        return_indices: Return ``(values, indices)``; the indices (int64) count within the flattened
            plane of the input.
    """
    found = _fractional(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]
