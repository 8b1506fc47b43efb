# SPDX-License-Identifier: BSD-3-Clause
"""Lookup of rows and their sum, mean or maximum over bags."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.table import define, derive_jointly
from ._common import Array, Spec, need_arrays
from .embedding import check_indices, check_range, summed_by_index


def _check(indices: Array, weight: Array, offsets: Array, per_sample: Array | None) -> None:
    given = () if per_sample is None else (per_sample,)
    need_arrays("embedding_bag", indices, weight, offsets, *given)
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {weight.shape}")
    check_indices("embedding_bag", indices)
    if per_sample is not None and per_sample.dtype != weight.dtype:
        raise RuntimeError(
            f"embedding_bag: expected per_sample_weights to have the dtype of weight ({weight.dtype}), got "
            f"{per_sample.dtype}"
        )


def _recorded(
    indices: Array,
    weight: Array,
    offsets: Array,
    per_sample: Array | None,
    mode: str,
    padding: int | None,
    by_frequency: bool,
) -> tuple[Array, Any]:
    """The bags; and the kept indices, their bags, their positions, the sizes of the bags, and for "max" who won.

    ``indices`` (n,), ``offsets`` (bags,) where each bag starts.
    """
    _check(indices, weight, offsets, per_sample)
    try:
        check_range("embedding_bag", indices, weight.shape[0])
    except IndexError as error:
        raise RuntimeError(str(error)) from None  # what torch raises for bags
    if offsets.size and offsets[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
            f"However, got {offsets[0]}"
        )
    if offsets.size and offsets[-1] > indices.size:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {indices.size} but got offsets[-1] of {offsets[-1]}"
        )
    bags = len(offsets)
    sizes = np.diff(np.append(offsets, indices.size))
    if (sizes < 0).any():
        raise RuntimeError("embedding_bag: offsets must not decrease")
    bag_of = np.repeat(np.arange(bags), sizes)
    kept = np.arange(indices.size)
    if padding is not None:
        kept = np.flatnonzero(indices != padding)
        indices, bag_of = indices[kept], bag_of[kept]
        sizes = np.bincount(bag_of, minlength=bags)
    out = np.zeros((bags, weight.shape[1]), weight.dtype)
    full = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[full]
    rows = weight.take(indices, axis=0)
    if per_sample is not None:
        rows = rows * per_sample[kept][:, None]
    winners = None
    if len(full):
        if mode == "max":
            out[full] = np.maximum.reduceat(rows, starts, axis=0)
            winners = _winners(rows, out, bag_of, starts)
        else:
            out[full] = np.add.reduceat(rows, starts, axis=0)
    if mode == "mean":
        out /= np.maximum(sizes, 1).astype(weight.dtype)[:, None]
    return out, (indices, bag_of, kept, sizes, full, winners)


def _winners(rows: Array, out: Array, bag_of: Array, starts: Array) -> Array:
    """Position of the first row of each bag that has the maximum, for each column: (full bags, width)."""
    place = np.where(rows == out[bag_of], np.arange(len(rows))[:, None], len(rows))
    return np.minimum.reduceat(place, starts, axis=0)


def _embedding_bag(*args: Any) -> Array:
    return _recorded(*args)[0]


def _backward(
    needs: Any,
    g: Array,
    saved: Any,
    indices: Any,
    weight: Array,
    offsets: Any,
    per_sample: Array | None,
    mode: str,
    padding: int | None,
    by_frequency: bool,
) -> tuple[Any, ...]:
    index, bag_of, kept, sizes, full, winners = saved
    count, width = weight.shape
    if mode == "max":
        table = np.zeros((count, width), g.dtype)
        if winners is not None:
            np.add.at(table, (index[winners], np.arange(width)), g[full])
        return None, table
    if mode == "mean":
        g = g / np.maximum(sizes, 1).astype(g.dtype)[:, None]
    rows = g[bag_of]
    gp = None
    if per_sample is not None:
        if needs[3]:
            gp = np.zeros(per_sample.shape, g.dtype)
            gp[kept] = (rows * weight.take(index, axis=0)).sum(1)
        rows = rows * per_sample[kept][:, None]
    gw = summed_by_index(rows, index, count, None, by_frequency) if needs[1] else None
    return None, gw, None, gp


def _meta(indices: Array, weight: Array, offsets: Array, per_sample: Array | None, *_: Any) -> Spec:
    _check(indices, weight, offsets, per_sample)
    return (len(offsets), weight.shape[1]), weight.dtype


embedding_bag = define("embedding_bag", _embedding_bag, meta=_meta, record=_recorded)
derive_jointly("embedding_bag", _backward)
