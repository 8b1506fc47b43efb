# SPDX-License-Identifier: BSD-3-Clause
"""embedding, embedding_bag."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import from_array, kernels
from modtree.numpy.ops.generic import Array, Spec, need_arrays, on_arrays_or_tensors, rows_of
from modtree.numpy.ops.registry import define, derive, derive_jointly, ops


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
                f"its table has {count} row{'' if count == 1 else 's'}"
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
        indices = np.array(indices)  # our own: nobody changes what is looked at
        check_range("embedding", indices, count)
        counts = np.bincount(indices, minlength=count)[indices]
        rows = rows / counts.astype(rows.dtype)[:, None]
    if rows.dtype == np.float16:
        wide = rows.astype(np.float32)
        return kernels.scatter_add_rows(indices, wide, count, padding).astype(np.float16)
    return kernels.scatter_add_rows(indices, rows, count, padding)


def _embedding_backward(
    g: Array, indices: Array, count: int, padding: int | None, by_frequency: bool
) -> Array:
    rows = rows_of(g)
    return summed_by_index(rows, indices.reshape(-1), count, padding, by_frequency)


def _embedding_double_backward(
    g: Any, _out: Any, _g: Any, indices: Any, count: int, padding: int | None, by_frequency: bool
) -> Any:
    """The table's gradient is linear in the gradient of the looked up rows: its derivative looks
    rows up.
    """
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
derive("embedding_backward", _embedding_double_backward)


def _check(indices: Array, weight: Array, offsets: Array, per_sample: Array | None) -> None:
    given = () if per_sample is None else (per_sample,)
    need_arrays("embedding_bag", indices, weight, offsets, *given)
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {weight.shape}")
    check_indices("embedding_bag", indices)
    if per_sample is not None and per_sample.dtype != weight.dtype:
        raise RuntimeError(
            "embedding_bag: expected per_sample_weights to have the dtype of weight "
            f"({weight.dtype}), got {per_sample.dtype}"
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
    """The bags; and the kept indices, their bags, their positions, the sizes of the bags, and for
    "max" who won.

    ``indices`` (n,), ``offsets`` (bags,) where each bag starts.
    """
    _check(indices, weight, offsets, per_sample)
    try:
        check_range("embedding_bag", indices, weight.shape[0])
    except IndexError as error:
        raise RuntimeError(str(error)) from None  # what torch raises for bags
    if offsets.size and offsets[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {offsets[0]}"
        )
    if offsets.size and offsets[-1] > indices.size:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {indices.size} but got "
            f"offsets[-1] of {offsets[-1]}"
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
    """Position of the first row of each bag that has the maximum, for each column: (full bags,
    width).
    """
    best, numbers = out[bag_of], np.arange(len(rows))[:, None]
    place = np.minimum.reduceat(np.where(rows == best, numbers, len(rows)), starts, axis=0)
    if place.size and place.max() == len(rows):  # NaN, which is equal to nothing
        is_best = (rows == best) | (np.isnan(rows) & np.isnan(best))
        place = np.minimum.reduceat(np.where(is_best, numbers, len(rows)), starts, axis=0)
    return place


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
