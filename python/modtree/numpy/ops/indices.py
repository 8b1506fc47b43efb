# SPDX-License-Identifier: BSD-3-Clause
"""What operations with indices share: their checks, index arrays, and sums by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import kernels, own_index

_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


_LONG = np.dtype(np.int64)
_INTS = (_LONG, np.dtype(np.int32))


def check_index(index: Any, name: str) -> None:
    if index.dtype not in _INTS:
        raise RuntimeError(
            f"{name}(): Expected dtype int32/int64 for index, got {index.dtype}: convert it with "
            f".long()"
        )


def check_long(index: Any, name: str, error: type[Exception] = RuntimeError) -> None:
    if np.dtype(getattr(index.dtype, "dtype", index.dtype)) != _LONG:
        raise error(
            f"{name}(): Expected dtype int64 for index, got {index.dtype}: convert it with .long()"
        )


def check_bounds(index: Any, size: int, axis: int, error: type[Exception] = RuntimeError) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        wrong = index[(index < 0) | (index >= size)].flat[0]
        raise error(f"index {wrong} is out of bounds for dimension {axis} with size {size}")


def at_least_1d(x: Any) -> Any:
    return x if x.ndim else x.reshape(1)


def along_axis(index: Any, axis: int) -> Any:
    """Index arrays that address (i, j, ...) with index[i, j, ...] in the dimension `axis`."""
    grid: list[Any] = []
    for i, size in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[i] = size
        grid.append(np.arange(size).reshape(shape))
    grid[axis] = index
    return tuple(grid)


def scattered(x: Any, axis: int, index: Any, source: Any, mode: str, own: bool = False) -> Any:
    """A copy of x (x itself with `own`) with the source assigned, added, ... along an axis; None
    where there is no kernel for it, or an index is out of range. Modes: "assign" for all dtypes;
    "add", "multiply", "amax", "amin" for float32 and float64.

    Args:
        x: One dimension at least.
        axis: Not negative.
        index: As many dimensions as x has; no larger than source.
        source: Of the dtype of x.
        mode: What happens to a value that is there.
        own: Nobody else has x.
    """
    if x.dtype.kind not in "?biufc" or (mode != "assign" and x.dtype not in _KERNEL_DTYPES):
        return None
    return kernels.scatter(x, axis, index, source, mode, own)


def slices(axis: int, index: Any) -> Any:
    """What picks an index of one dimension, of all indices of those before it."""
    return (slice(None),) * axis + (index,)


def shape_given(g: Any, shape: Any, *args: Any) -> Any:
    """The rule for meta tensors of what spreads gradients over zeros of a shape."""
    return shape, g.dtype


def sum_rows(index: Any, rows: Any, count: int) -> Any:
    """Zeros of shape (count, *rest) with rows[i] added at index[i]. Shapes (n,), (n, *rest);
    indices may repeat and be negative.
    """
    rest = rows.shape[1:]
    if index.size == 0 or rows.size == 0:
        return np.zeros((count, *rest), rows.dtype)
    if index.dtype.kind == "i":
        if index.min() < 0:
            index = np.where(index < 0, index + count, index)
        index = index.astype(np.int64, copy=False)
    else:
        index = index.astype(np.int64)
    if rows.dtype in _KERNEL_DTYPES:
        flat = np.ascontiguousarray(rows).reshape(index.size, math.prod(rest))
        return kernels.scatter_add_rows(index, flat, count).reshape((count, *rest))
    result = np.zeros((count, *rest), rows.dtype)
    order = np.argsort(index, kind="stable")
    indices = index[order]
    starts = np.flatnonzero(np.concatenate(([True], indices[1:] != indices[:-1])))
    # Half precision would stall: sums of many small numbers need more digits than it has.
    wide = np.float32 if rows.dtype == np.float16 else rows.dtype
    result[indices[starts]] = np.add.reduceat(rows[order], starts, axis=0, dtype=wide)
    return result


def sum_at(size: int, indices: Any, values: Any) -> Any:
    """A vector of `size` zeros with each value added at its index."""
    return sum_rows(indices.reshape(-1), values.reshape(-1), size)


def positions(shape: tuple[int, ...], index: Any) -> Any:
    """For each element that ``x[index]`` picks from an array of this shape, its number in C
    order.
    """
    return np.arange(math.prod(shape)).reshape(shape)[own_index(index)]


def flat_indices(shape: tuple[int, ...], arrays: Any) -> Any:
    """The same for one index array per dimension, without an array of the size of x. Indices may be
    negative and broadcast.
    """
    indices: Any = 0
    for size, index in zip(shape, arrays, strict=True):
        if index.size and index.dtype.kind == "i" and index.min() < 0:
            index = np.where(index < 0, index + size, index)
        indices = indices * size + index
    return indices


def sum_slices(slices: Any, size: int, axis: int, index: Any) -> Any:
    """Zeros with each slice along an axis, which gets this size, added at its index."""
    summed = sum_rows(index, np.moveaxis(slices, axis, 0), size)
    return np.moveaxis(summed, 0, axis)
