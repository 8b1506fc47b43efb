# SPDX-License-Identifier: BSD-3-Clause
"""Pooling undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from modtree._C import as_tuple
from modtree.nn.functional._common import Sizes, for_axes, named, need_tensor, pool_sizes
from modtree.numpy.argument_types import Ints
from modtree.numpy.ops import pool as pool_ops
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]


if TYPE_CHECKING:

    class _MaxUnpool(Protocol):
        def __call__(
            self,
            input: Tensor,
            indices: Tensor,
            kernel_size: Ints,
            stride: Ints | None = None,
            padding: Ints = 0,
            output_size: Sequence[int] | None = None,
        ) -> Tensor: ...


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
    return pool_ops.max_unpool(input, indices, sizes)


_MAX_UNPOOL = """Puts maxima back where :func:`max_pool{n}d` found them; everything else is zero.

    Args:
        input: (N, C, {sizes}), or without N.
        indices: Where each value goes, of the same shape, as ``return_indices=True`` gives them.
        kernel_size: Extent of a window of the pooling.
        stride: Distance of its windows; by default their extent.
        padding: Its padding.
        output_size: The size before the pooling, ({sizes}) or with N and C, where several give the
            same after it.
    """


def _make_max_unpool(n: int) -> _MaxUnpool:
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        return _max_unpool(n, input, indices, kernel_size, stride, padding, output_size)

    return named(max_unpool, f"max_unpool{n}d", for_axes(n, _MAX_UNPOOL))


max_unpool1d, max_unpool2d, max_unpool3d = map(_make_max_unpool, (1, 2, 3))
