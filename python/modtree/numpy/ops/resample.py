# SPDX-License-Identifier: BSD-3-Clause
"""Sums of a few weighted elements along one axis: interpolation, adaptive mean, padding by
reflection are all made of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.numpy.ops.generic import Array, Spec, need_arrays
from modtree.numpy.ops.registry import define, derive
from modtree.numpy.ops.windows import run


def _weights_of(weights: Array | None, tap: int, dtype: Any, after: int) -> Any:
    assert weights is not None
    return weights[tap].astype(dtype, copy=False).reshape(-1, *(1,) * after)


def _check(x: Array, weights: Array | None) -> None:
    need_arrays("resample", x)
    if weights is not None and x.dtype.kind not in "fc" and x.dtype != np.uint8:
        raise NotImplementedError(
            f'"resample" not implemented for {x.dtype}: a mean needs a floating dtype, convert '
            f"with .float()"
        )


def _resample(x: Array, axis: int, taps: Array, weights: Array | None, size: int) -> Array:
    """``out[..., i, ...] = sum over t of weights[t, i] * x[..., taps[t, i], ...]``.

    Args:
        x: Any shape.
        axis: The axis that is replaced, not negative.
        taps: int64 (number of taps, new size).
        weights: Like ``taps``, or None for ones.
        size: The old size; said again because the transpose needs it.
    """
    _check(x, weights)
    if weights is not None and x.dtype == np.uint8:
        return _resample_bytes(x, axis, taps, weights)
    dtype = np.dtype(np.float32) if x.dtype == np.float16 and weights is not None else x.dtype
    after = x.ndim - axis - 1
    total = None
    for tap, indices in enumerate(taps):
        part = x.take(indices, axis)
        if weights is not None:
            part = part * _weights_of(weights, tap, dtype, after)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total.astype(x.dtype, copy=False)


def _resample_bytes(x: Array, axis: int, taps: Array, weights: Array) -> Array:
    """With weights in fixed point, as many bits as 16 have room for, and rounded."""
    weights = _merged_at_borders(taps, weights)
    bits = 0
    while bits < 22 and int(0.5 + weights.max() * (2 << bits)) < 1 << 15:
        bits += 1
    scaled = weights * (1 << bits)
    whole = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int32)
    after = x.ndim - axis - 1
    total: Any = 1 << bits >> 1
    for tap, indices in enumerate(taps):
        total = total + x.take(indices, axis) * _weights_of(whole, tap, np.int32, after)
    return np.clip(total >> bits, 0, 255).astype(np.uint8)


def _merged_at_borders(taps: Array, weights: Array) -> Array:
    """The sum of the weights of one element at its last tap: sums are rounded, not terms."""
    merged = weights.copy()
    for tap in range(1, len(taps)):
        again = taps[tap] == taps[tap - 1]
        merged[tap] += np.where(again, merged[tap - 1], 0)
        merged[tap - 1][again] = 0
    return merged


def _resample_meta(x: Array, axis: int, taps: Array, weights: Array | None, size: int) -> Spec:
    _check(x, weights)
    return (*x.shape[:axis], taps.shape[1], *x.shape[axis + 1 :]), x.dtype


def _scatter_taps(g: Array, axis: int, taps: Array, weights: Array | None, size: int) -> Array:
    """The transpose: adds ``weights[t, i] * g[..., i, ...]`` to the element ``taps[t, i]`` of an
    axis of ``size``.
    """
    dtype = np.dtype(np.float32) if g.dtype == np.float16 else g.dtype
    result = np.zeros((*g.shape[:axis], size, *g.shape[axis + 1 :]), dtype)
    indices = taps.reshape(-1)
    if indices.size == 0 or result.size == 0:
        return result.astype(g.dtype, copy=False)
    back = _reversed_taps(taps, weights, size)
    if back is not None:
        return _resample(g, axis, *back, taps.shape[1])
    # What goes to one element stands side by side, to be added up by reduceat.
    order = np.argsort(indices, kind="stable")
    parts = g.take(order % taps.shape[1], axis)
    if weights is not None:
        factors = weights.reshape(-1)[order].astype(dtype, copy=False)
        parts = parts * factors.reshape(-1, *(1,) * (g.ndim - axis - 1))
    targets, begins = np.unique(indices[order], return_index=True)
    lead = (slice(None),) * axis
    result[lead + (targets,)] = np.add.reduceat(parts, begins, axis, dtype)
    return result.astype(g.dtype, copy=False)


def _reversed_taps(
    taps: Array, weights: Array | None, size: int
) -> tuple[Array, Array | None] | None:
    """The taps of the transpose; None when a few elements have so many that filling up the others
    would cost more than sorting.
    """
    new = taps.shape[1]
    indices = taps.reshape(-1)
    if weights is not None:
        # Taps of weight 0 only fill up.
        used = np.flatnonzero(weights.reshape(-1))
        indices = indices[used]
    else:
        used = np.arange(indices.size)
    counts = np.bincount(indices, minlength=size)
    most = int(counts.max()) if counts.size else 0
    if most == 0 or most * size > 3 * taps.size + size:
        return None
    order = np.argsort(indices, kind="stable")
    begins = np.cumsum(counts) - counts
    row = np.arange(indices.size) - begins[indices[order]]
    back = np.zeros((most, size), np.int64)
    factors = np.zeros((most, size), np.float64 if weights is None else weights.dtype)
    back[row, indices[order]] = used[order] % new
    factors[row, indices[order]] = 1 if weights is None else weights.reshape(-1)[used[order]]
    if weights is None and (counts == most).all():
        return back, None
    return back, factors


resample = define("resample", _resample, meta=_resample_meta)
_scatter = define(
    "scatter_taps",
    _scatter_taps,
    meta=lambda g, axis, taps, weights, size: (
        (*g.shape[:axis], size, *g.shape[axis + 1 :]),
        g.dtype,
    ),
)
derive(
    "resample",
    lambda g, _out, _x, axis, taps, weights, size: run(_scatter, g, axis, taps, weights, size),
)
derive(
    "scatter_taps",
    lambda g, _out, _g, axis, taps, weights, size: run(resample, g, axis, taps, weights, size),
)
