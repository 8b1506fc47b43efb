# SPDX-License-Identifier: BSD-3-Clause
"""Lookup of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.table import define, derive, ops
from ._common import Array, Spec, need_arrays, on_arrays_or_tensors


def check_indices(name: str, indices: Array) -> None:
    if indices.dtype not in (np.int64, np.int32):
        raise RuntimeError(
            f"{name}: expected indices of one of the following scalar types: Long, Int; "
            f"but got {indices.dtype} instead"
        )


def check_range(name: str, indices: Array, count: int) -> None:
    """The least and the greatest index must be rows of a table of ``count``."""
    if indices.size:
        low, high = indices.min(), indices.max()
        if low < 0 or high >= count:
            raise IndexError(
                f"index out of range in self: {name} got index {low if low < 0 else high}, "
                f"its table has {count} rows"
            )


def _check_embedding(indices: Array, weight: Array) -> None:
    need_arrays("embedding", indices, weight)
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {weight.shape}")
    check_indices("embedding", indices)


def _embedding(
    indices: Array, weight: Array, padding: int | None = None, by_frequency: bool = False
) -> Array:
    _check_embedding(indices, weight)
    check_range("embedding", indices, weight.shape[0])
    return weight.take(indices, axis=0)


def _embedding_meta(
    indices: Array, weight: Array, padding: int | None = None, by_frequency: bool = False
) -> Spec:
    _check_embedding(indices, weight)
    return indices.shape + weight.shape[1:], weight.dtype


def summed_by_index(
    rows: Array, indices: Array, count: int, padding: int | None, by_frequency: bool = False
) -> Array:
    """A (count, width) table: each row of ``rows`` added at its index.

    Rows of one index are brought together and summed at once: ``np.add.at`` is many times slower.

    Args:
        rows: (n, width).
        indices: (n,) integers.
        count: Number of rows of the result.
        padding: This row stays zero.
        by_frequency: Mean over the rows of one index instead of their sum.
    """
    table = np.zeros((count, rows.shape[-1]), rows.dtype)
    if not indices.size:
        return table
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(starts) == len(order):  # all different
        sums = rows[order]
    else:
        sums = np.add.reduceat(rows[order], starts, axis=0)
    used = ordered[starts]
    if by_frequency:
        counts = np.diff(np.append(starts, len(order)))
        sums = sums / counts.astype(rows.dtype)[:, None]
    table[used] = sums
    if padding is not None:
        table[padding] = 0
    return table


def _embedding_backward(
    g: Array, indices: Array, count: int, padding: int | None, by_frequency: bool
) -> Array:
    rows = g.reshape(-1, g.shape[-1])
    return summed_by_index(rows, indices.reshape(-1), count, padding, by_frequency)


def _embedding_twice(
    g: Any, _out: Any, _g: Any, indices: Any, count: int, padding: int | None, by_frequency: bool
) -> Any:
    """The table's gradient is linear in the gradient of the looked up rows: its derivative looks rows up."""
    plain = indices if isinstance(indices, np.ndarray) else indices._array
    factor = np.ones(plain.shape, g.dtype if isinstance(g, np.ndarray) else g._array.dtype)
    if by_frequency:
        _, inverse, counts = np.unique(plain, return_inverse=True, return_counts=True)
        factor = (1 / counts[inverse].reshape(plain.shape)).astype(factor.dtype)
    if padding is not None:
        factor[plain == padding] = 0
    factor = factor[..., None]
    if isinstance(g, np.ndarray):
        return g.take(indices, axis=0) * factor
    from ..._C import from_array

    return embedding(indices, g) * from_array(factor)


embedding = define("embedding", _embedding, meta=_embedding_meta)
define(
    "embedding_backward",
    _embedding_backward,
    meta=lambda g, indices, count, *_: ((count, g.shape[-1]), g.dtype),
)
backward = on_arrays_or_tensors(ops["embedding_backward"])
derive(
    "embedding",
    None,
    lambda g, _out, indices, weight_like, padding=None, by_frequency=False: backward(
        g, indices, weight_like.shape[0], padding, by_frequency
    ),
)
derive("embedding_backward", _embedding_twice)
