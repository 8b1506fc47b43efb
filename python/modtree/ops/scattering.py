# SPDX-License-Identifier: BSD-3-Clause
"""scatter_reduce(): values brought together where index says, by a sum, product, mean or extreme value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree.ops.accumulate import flat_places, sum_at
from modtree.ops.indexing import _check_bounds, _check_index, place_of
from modtree.ops.shape import _dim
from modtree.ops.table import define, expose, ops

_MODES = ("sum", "prod", "mean", "amax", "amin")


def places_of(shape: tuple[int, ...], axis: int, index: Any) -> Any:
    """For each element of index the number, in C order, of the element of the result that it means."""
    wide = tuple(shape) or (1,)
    index = index if index.ndim else index.reshape(1)
    return flat_places(wide, place_of(index, axis % len(wide))).reshape(-1)


def corner(source: Any, index: Any) -> Any:
    """The part of source that index covers, as a vector."""
    part = source[tuple(slice(n) for n in index.shape)] if index.ndim else source
    return part.reshape(-1)


def counts(size: int, places: Any) -> Any:
    """How many values come to each element of the result."""
    return np.bincount(places, minlength=size)


def _scatter_reduce(
    x: Any, axis: int, index: Any, source: Any, mode: str, include_self: bool
) -> Any:
    if mode not in _MODES:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {mode}"
        )
    _check_index(index, "scatter_reduce")
    if source.dtype != x.dtype:
        raise RuntimeError(
            f"scatter(): Expected self.dtype to be equal to src.dtype, got {x.dtype} and {source.dtype}"
        )
    if index.ndim != x.ndim or source.ndim != x.ndim:
        raise RuntimeError(
            f"Index tensor must have the same number of dimensions as self and src tensor, got {index.ndim}, {x.ndim} "
            f"and {source.ndim}"
        )
    axis = _dim(axis, x.ndim)
    _check_bounds(index, x.shape[axis] if x.ndim else 1, axis)
    if index.size == 0:
        return x.copy()
    places, values = places_of(x.shape, axis, index), corner(source, index)
    flat = x.reshape(-1)
    touched = np.zeros(x.size, np.bool_)
    touched[places] = True
    if mode in ("sum", "mean"):
        total = np.where(touched & (not include_self), x.dtype.type(0), flat)
        if x.dtype.kind in "fc":
            total = total + sum_at(x.size, places, values)
        else:
            np.add.at(total, places, values)
        if mode == "mean":
            count = np.maximum(counts(x.size, places) + include_self * touched, 1)
            total = (total / count if x.dtype.kind in "fc" else total // count).astype(x.dtype)
        return total.reshape(x.shape)
    start = flat.copy()
    if not include_self:
        start[touched] = _neutral(mode, x.dtype)
    {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[mode].at(start, places, values)
    return start.reshape(x.shape)


def _neutral(mode: str, dtype: Any) -> Any:
    """The value that leaves the others as they are."""
    if mode == "prod":
        return 1
    if dtype.kind == "f":
        return -math.inf if mode == "amax" else math.inf
    if dtype.kind == "b":
        return mode == "amin"
    info = np.iinfo(dtype)
    return info.min if mode == "amax" else info.max


define("scatter_reduce", _scatter_reduce, meta=lambda x, *_: (x.shape, x.dtype))


def scatter_reduce(
    input: Any,
    dim: int,
    index: Any,
    src: Any,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """A copy in which the values of src that index sends to one element are brought together, with the element or in its place.

    Args:
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: Does the element itself count as one of the values?
    """
    return ops["scatter_reduce"](input, dim, index, src, reduce, include_self)


def scatter_reduce_(
    self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """scatter_reduce() in place."""
    # By way of copies: the derivative needs what self was.
    return self.copy_(ops["scatter_reduce"](self.clone(), dim, index, src, reduce, include_self))


expose("scatter_reduce", scatter_reduce)
expose("scatter_reduce_", scatter_reduce_, function=False)
