# SPDX-License-Identifier: BSD-3-Clause
"""Indexing, gathering and scattering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modtree import _C
from modtree._batching.rules.pointwise import aligned
from modtree._ops.generic import wrap_dim
from modtree._tensor.ranges import arange

__all__ = ["RULES"]


def _is_array(part: Any) -> bool:
    return isinstance(part, (_C.TensorBase, np.ndarray, list))


def _is_mask(part: Any) -> bool:
    return _is_array(part) and "bool" in str(getattr(part, "dtype", ""))


def _getitem(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, index = args
    parts = index if isinstance(index, tuple) else (index,)
    places = [i for i, part in enumerate(parts) if _is_array(part)]
    if not any(level.holds(part) for part in parts):
        # Several index arrays with something between them would move their dimensions in front.
        together = not places or places[-1] - places[0] + 1 == len(places)
        return op(x._full, (slice(None), *parts)) if together else NotImplemented
    if any(map(_is_mask, parts)) or places != list(range(len(places))):
        return NotImplemented
    if any(isinstance(part, (int, list, np.ndarray)) for part in parts):
        return NotImplemented
    ndim = max(part.ndim for part in parts[: len(places)])
    indices = [aligned(level, part, ndim) for part in parts[: len(places)]]
    if not level.holds(x):
        return op(x, (*indices, *parts[len(places) :]))
    samples = arange(level.size).reshape(level.size, *(1,) * ndim)
    return op(x._full, (samples, *indices, *parts[len(places) :]))


def _by_index(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """op(x, axis, index, ...) where all have equally many dimensions."""
    x, axis, index, *rest = args
    tensors = [r for r in rest if isinstance(r, _C.TensorBase)]
    if kwargs or not x.ndim or any(t.ndim != x.ndim for t in (index, *tensors)):
        return NotImplemented
    rest = [level.full_of(r) if isinstance(r, _C.TensorBase) else r for r in rest]
    return op(level.full_of(x), wrap_dim(axis, x.ndim) + 1, level.full_of(index), *rest)


def _take_along(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, index, axis = args
    if kwargs or axis is None or not x.ndim or x.ndim != index.ndim:
        return NotImplemented
    return op(level.full_of(x), level.full_of(index), wrap_dim(axis, x.ndim) + 1)


def _select(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """op(x, axis, index, ...) with a vector of indices that is the same for all samples."""
    x, axis, index, *rest = args
    if kwargs or not x.ndim or level.holds(index):
        return NotImplemented
    if rest and (not isinstance(rest[0], _C.TensorBase) or rest[0].ndim != x.ndim):
        return NotImplemented
    rest = [level.full_of(r) if isinstance(r, _C.TensorBase) else r for r in rest]
    return op(level.full_of(x), wrap_dim(axis, x.ndim) + 1, index, *rest)


def _embedding(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    indices, weight, *options = args
    if level.holds(weight):
        return NotImplemented
    return op(indices._full, weight, *options, **kwargs)


RULES: dict[str, Callable[..., Any]] = {
    "getitem": _getitem,
    "gather": _by_index,
    "scatter": _by_index,
    "take_along_dim": _take_along,
    "index_select": _select,
    "index_add": _select,
    "index_copy": _select,
    "embedding": _embedding,
}
