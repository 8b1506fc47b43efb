# SPDX-License-Identifier: BSD-3-Clause
"""Lookup of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._C import from_array, kernels
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

    Args:
        rows: (n, width).
        indices: (n,) integers.
        count: Number of rows of the result.
        padding: This row stays zero.
        by_frequency: Mean over the rows of one index instead of their sum.
    """
    if by_frequency:
        counts = np.bincount(indices, minlength=count)[indices]
        rows = rows / counts.astype(rows.dtype)[:, None]
    if rows.dtype == np.float16:
        wide = rows.astype(np.float32)
        return kernels.scatter_add_rows(indices, wide, count, padding).astype(np.float16)
    return kernels.scatter_add_rows(indices, rows, count, padding)


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
