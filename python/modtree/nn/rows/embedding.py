# SPDX-License-Identifier: BSD-3-Clause
"""Lookup of rows."""

from __future__ import annotations

import numpy as np

from ...ops.table import define
from ._common import Array, Spec, need_arrays


def _check_embedding(indices: Array, weight: Array) -> None:
    need_arrays("embedding", indices, weight)
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {weight.shape}")
    if indices.dtype not in (np.int64, np.int32):
        raise RuntimeError(
            "embedding: expected indices of one of the following scalar types: Long, Int; "
            f"but got {indices.dtype} instead"
        )


def _embedding(indices: Array, weight: Array) -> Array:
    _check_embedding(indices, weight)
    if indices.size:
        low, high = indices.min(), indices.max()
        if low < 0 or high >= weight.shape[0]:
            raise IndexError(
                f"index out of range in self: embedding got index {low if low < 0 else high}, "
                f"its table has {weight.shape[0]} rows"
            )
    return weight.take(indices, axis=0)


def _embedding_meta(indices: Array, weight: Array) -> Spec:
    _check_embedding(indices, weight)
    return indices.shape + weight.shape[1:], weight.dtype


embedding = define("embedding", _embedding, meta=_embedding_meta)
