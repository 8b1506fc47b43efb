# SPDX-License-Identifier: BSD-3-Clause
"""Pooling of jax arrays: windows by ``lax.reduce_window``, parts by small matrices; and max pooling
undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from modtree.jax_arrays.functions._common import (
    Array,
    Ints,
    batched,
    each,
    flat_places,
    gather_windows,
)


class _Windows:
    """Where the windows over the last axes begin and end."""

    def __init__(
        self,
        n: int,
        sizes: tuple[int, ...],
        kernel_size: Ints,
        stride: Ints | None,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
    ) -> None:
        self.sizes, self.ceil_mode = sizes, ceil_mode
        self.kernel = each(kernel_size, n)
        no_stride = stride is None or (isinstance(stride, (tuple, list)) and not stride)
        self.stride = self.kernel if no_stride else each(stride, n)
        self.padding, self.dilation = each(padding, n), each(dilation, n)
        for k, p in zip(self.kernel, self.padding, strict=True):
            if not 0 <= p <= k // 2:
                raise ValueError(
                    f"expected a padding of at most half the kernel size, got {p} and {k}"
                )
        self.counts = [self._count(i) for i in range(n)]

    def _reach(self, i: int) -> int:
        return self.dilation[i] * (self.kernel[i] - 1) + 1

    def _count(self, i: int) -> int:
        room = self.sizes[i] + 2 * self.padding[i] - self._reach(i)
        count = (-(-room // self.stride[i]) if self.ceil_mode else room // self.stride[i]) + 1
        # The last window begins within the input or the padding before it.
        begins = (count - 1) * self.stride[i]
        return count - (self.ceil_mode and begins >= self.sizes[i] + self.padding[i])

    def pads(self) -> list[tuple[int, int]]:
        """Elements before the first and after the last."""
        return [
            (p, max((c - 1) * s + self._reach(i) - self.sizes[i] - p, 0))
            for i, (p, c, s) in enumerate(zip(self.padding, self.counts, self.stride, strict=True))
        ]

    def positions(self) -> list[np.ndarray]:
        """Of each axis the elements of each window, -1 outside of the input."""
        found = []
        for i, size in enumerate(self.sizes):
            begins = np.arange(self.counts[i]) * self.stride[i] - self.padding[i]
            place = begins[:, None] + np.arange(self.kernel[i]) * self.dilation[i]
            found.append(np.where((place >= 0) & (place < size), place, -1))
        return found

    def reduce(self, x: Array, start: Any, operation: Callable[..., Any]) -> Array:
        return jax.lax.reduce_window(
            x,
            start,
            operation,
            (1, 1, *self.kernel),
            (1, 1, *self.stride),
            ((0, 0), (0, 0), *self.pads()),
            window_dilation=(1, 1, *self.dilation),
        )

    def elements(self, count_padding: bool) -> np.ndarray:
        """By how much the sum of each window is divided."""
        total = np.ones((), np.float32)
        for i, size in enumerate(self.sizes):
            begin = np.arange(self.counts[i]) * self.stride[i] - self.padding[i]
            end = np.minimum(begin + self.kernel[i], size + self.padding[i])
            if not count_padding:
                begin, end = np.maximum(begin, 0), np.minimum(end, size)
            total = total[..., None] * (end - begin).astype(np.float32)
        return total


def _largest(x: Array, positions: list[np.ndarray], has_batch: bool) -> tuple[Array, Array]:
    values = gather_windows(x, positions)
    chosen = jnp.argmax(values, -1, keepdims=True)
    found = jnp.take_along_axis(values, chosen, -1)[..., 0]
    places = jnp.broadcast_to(jnp.asarray(flat_places(positions, x.shape[2:])), values.shape)
    indices = jnp.take_along_axis(places, chosen, -1)[..., 0]
    return (found, indices) if has_batch else (found[0], indices[0])


# -- a given number of parts -----------------------------------------------------------------------


def _bounds(size: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each of the parts begins and ends."""
    number = np.arange(parts)
    return number * size // parts, -(-(number + 1) * size // parts)


def _parts(n: int, x: Array, output_size: Any) -> list[int]:
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    return [x.shape[2 + i] if w is None else int(w) for i, w in enumerate(wanted)]


# -- under their names -----------------------------------------------------------------------------


def _make_max_pool(n: int, both: bool) -> Any:
    def max_pool(
        input: Array,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        with_indices = both or return_indices
        x, has_batch = batched(f"max_pool{n}d", input, n)
        windows = _Windows(n, x.shape[2:], kernel_size, stride, padding, dilation, ceil_mode)
        # jax does not derive maxima of windows with distances between their elements.
        if not with_indices and max(windows.dilation) == 1:
            inexact = jnp.issubdtype(x.dtype, jnp.floating)
            start = -jnp.inf if inexact else jnp.iinfo(x.dtype).min
            # An initial value of the very dtype: only then it is known as a maximum, and derived.
            y = windows.reduce(x, np.array(start, x.dtype)[()], jax.lax.max)
            return y if has_batch else y[0]
        found, indices = _largest(x, windows.positions(), has_batch)
        return (found, indices) if with_indices else found

    return max_pool


def _make_avg_pool(n: int) -> Any:
    def avg_pool(
        input: Array,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        x, has_batch = batched(f"avg_pool{n}d", input, n)
        windows = _Windows(n, x.shape[2:], kernel_size, stride, padding, 1, ceil_mode)
        total = windows.reduce(x, np.array(0, x.dtype)[()], jax.lax.add)
        by: Any = divisor_override or windows.elements(count_include_pad)
        y = total / jnp.asarray(by, x.dtype)
        return y if has_batch else y[0]

    return avg_pool


def _make_max_unpool(n: int) -> Any:
    def max_unpool(
        input: Array,
        indices: Array,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        output_size: Sequence[int] | None = None,
    ) -> Array:
        name = f"max_unpool{n}d"
        x, has_batch = batched(name, input, n)
        if indices.shape != input.shape:
            raise RuntimeError(
                f"{name}(): expected shape of indices to be that of the input "
                f"({list(input.shape)}) but got {list(indices.shape)}"
            )
        kernel = each(kernel_size, n)
        steps = kernel if stride is None else each(stride, n)
        pads = each(padding, n)
        usual = [
            (size - 1) * s - 2 * p + k
            for size, s, p, k in zip(x.shape[2:], steps, pads, kernel, strict=True)
        ]
        sizes = usual if output_size is None else list(output_size)[-n:]
        for wanted, middle, s in zip(sizes, usual, steps, strict=True):
            if output_size is not None and not middle - s < wanted < middle + s:
                raise ValueError(
                    f"{name}(): expected an output_size within a stride of {usual}, got {sizes}"
                )
        batch, channels = x.shape[:2]
        flat = jnp.zeros((batch, channels, math.prod(sizes)), x.dtype)
        places = jnp.asarray(indices).reshape(batch, channels, -1)
        index = (*jnp.ogrid[:batch, :channels, :1][:2], places)
        flat = flat.at[index].set(x.reshape(places.shape))
        result = flat.reshape(batch, channels, *sizes)
        return result if has_batch else result[0]

    return max_unpool


def _make_adaptive_avg_pool(n: int) -> Any:
    def adaptive_avg_pool(input: Array, output_size: Any) -> Array:
        x, has_batch = batched(f"adaptive_avg_pool{n}d", input, n)
        for axis, parts in enumerate(_parts(n, x, output_size), 2):
            begin, end = _bounds(x.shape[axis], parts)
            place = np.arange(x.shape[axis])
            inside = (place >= begin[:, None]) & (place < end[:, None])
            weights = inside / (end - begin)[:, None]
            x = jnp.moveaxis(jnp.moveaxis(x, axis, -1) @ jnp.asarray(weights.T, x.dtype), -1, axis)
        return x if has_batch else x[0]

    return adaptive_avg_pool


def _make_adaptive_max_pool(n: int, both: bool) -> Any:
    def adaptive_max_pool(input: Array, output_size: Any, return_indices: bool = False) -> Any:
        x, has_batch = batched(f"adaptive_max_pool{n}d", input, n)
        positions = []
        for size, parts in zip(x.shape[2:], _parts(n, x, output_size), strict=True):
            begin, end = _bounds(size, parts)
            place = begin[:, None] + np.arange(max((end - begin).max(initial=1), 1))
            positions.append(np.where(place < end[:, None], place, -1))
        found, indices = _largest(x, positions, has_batch)
        return (found, indices) if both or return_indices else found

    return adaptive_max_pool


max_pool1d, max_pool2d, max_pool3d = (_make_max_pool(n, False) for n in (1, 2, 3))
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    _make_max_pool(n, True) for n in (1, 2, 3)
)
avg_pool1d, avg_pool2d, avg_pool3d = map(_make_avg_pool, (1, 2, 3))
max_unpool1d, max_unpool2d, max_unpool3d = map(_make_max_unpool, (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(
    _make_adaptive_avg_pool, (1, 2, 3)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _make_adaptive_max_pool(n, False) for n in (1, 2, 3)
)
(
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices,
) = (_make_adaptive_max_pool(n, True) for n in (1, 2, 3))
