# SPDX-License-Identifier: BSD-3-Clause
"""Sums of slices that fall on the same place: what the gradient of a lookup is made of.

``np.add.at`` walks over single elements; a kernel adds whole slices, and for the dtypes it has not, sorting the indices first lets NumPy do so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import kernels

_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def sum_rows(index: Any, rows: Any, count: int) -> Any:
    """Zeros of shape (count, *rest) with rows[i] added at index[i]. Shapes (n,), (n, *rest); indices may repeat and be negative."""
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
    places = index[order]
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
    # Half precision would stall: sums of many small numbers need more digits than it has.
    wide = np.float32 if rows.dtype == np.float16 else rows.dtype
    result[places[starts]] = np.add.reduceat(rows[order], starts, axis=0, dtype=wide)
    return result


def sum_at(size: int, places: Any, values: Any) -> Any:
    """A vector of `size` zeros with each value added at its place."""
    return sum_rows(places.reshape(-1), values.reshape(-1), size)


def positions(shape: tuple[int, ...], index: Any) -> Any:
    """For each element that ``x[index]`` picks from an array of this shape, its number in C order."""
    return np.arange(math.prod(shape)).reshape(shape)[index]


def flat_places(shape: tuple[int, ...], arrays: Any) -> Any:
    """The same for one index array per dimension, without an array of the size of x. Indices may be negative and broadcast."""
    places: Any = 0
    for size, index in zip(shape, arrays, strict=True):
        if index.size and index.dtype.kind == "i" and index.min() < 0:
            index = np.where(index < 0, index + size, index)
        places = places * size + index
    return places
