# SPDX-License-Identifier: BSD-3-Clause
"""max_unpool: values put back where pooling found them; and fractional_max_pool, whose windows are
not evenly spaced.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import own_index
from modtree._ops.generic import Array, Spec, need_arrays, need_floating, operation
from modtree._ops.registry import define, derive
from modtree._ops.windows import Sizes

_put, _take = operation("put_planes"), operation("take_planes")


# -- back to where the maxima stood ----------------------------------------------------------------


def _max_unpool(values: Array, indices: Array, sizes: Sizes) -> Array:
    """Planes of ``sizes`` with each value where its index says, zero elsewhere; the last of several
    at one place.
    """
    need_arrays("max_unpool", values, indices)
    need_floating("max_unpool", values)
    plane, indices = math.prod(sizes), own_index(indices)
    if not plane:
        return np.zeros((*values.shape[: values.ndim - len(sizes)], *sizes), values.dtype)
    if indices.size and (indices.min() < 0 or indices.max() >= plane):
        wrong = int(indices.max() if indices.max() >= plane else indices.min())
        found = "x".join(map(str, sizes))
        raise RuntimeError(
            f"Found an invalid max index: {wrong} (output volumes are of size {found})"
        )
    lead = values.shape[: values.ndim - len(sizes)]
    planes = math.prod(lead)
    count = math.prod(values.shape[values.ndim - len(sizes) :])
    result = np.zeros((planes, plane), values.dtype)
    result[np.arange(planes)[:, None], indices.reshape(planes, count)] = values.reshape(
        planes, count
    )
    return result.reshape(*lead, *sizes)


def _max_unpool_meta(values: Array, indices: Array, sizes: Sizes) -> Spec:
    return (*values.shape[: values.ndim - len(sizes)], *sizes), values.dtype


max_unpool = define("max_unpool", _max_unpool, meta=_max_unpool_meta)
derive("max_unpool", lambda g, _out, _values, indices, sizes: _take(g, indices, sizes))


# -- maximum over windows at random distances ------------------------------------------------------


def _starts(samples: Array, size: int, count: int, kernel: int) -> Array:
    """Where the windows of an axis begin, (..., count): a random step between them; the last one
    ends with the axis.
    """
    starts = np.full((*samples.shape, count), size - kernel, np.int64)
    if count > 1:
        u = samples[..., None]
        alpha = samples.dtype.type(size - kernel) / samples.dtype.type(count - 1)
        steps = np.arange(count - 1, dtype=samples.dtype)
        starts[..., :-1] = ((steps + u) * alpha).astype(np.int64) - (u * alpha).astype(np.int64)
    return starts


def _fractional(x: Array, samples: Array, kernel: Sizes, counts: Sizes) -> tuple[Array, Array]:
    """The largest values, and where each stands in its plane: the first of several, the last
    NaN.
    """
    need_arrays("fractional_max_pool", x, samples)
    n = len(kernel)
    lead, sizes = x.shape[: x.ndim - n], x.shape[x.ndim - n :]
    # One sample for each axis; in two dimensions that of the width comes first.
    columns = range(n) if n == 3 else reversed(range(n))
    flat: Any = 0
    for i, column in enumerate(columns):
        begin = _starts(samples[..., column].reshape(lead), sizes[i], counts[i], kernel[i])
        along = (begin[..., None] + np.arange(kernel[i])) * math.prod(sizes[i + 1 :])
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = counts[i], kernel[i]
        flat = flat + along.reshape(*lead, *shape)
    flat = flat.reshape(*lead, math.prod(counts), math.prod(kernel))
    planes = x.reshape(*lead, math.prod(sizes))
    candidates = np.take_along_axis(
        planes[..., None], flat.reshape(*lead, math.prod(flat.shape[-2:]), 1), -2
    )
    candidates = candidates.reshape(flat.shape)
    best = candidates.argmax(-1)
    missing = np.isnan(candidates)
    if missing.any():
        last = missing.shape[-1] - 1 - missing[..., ::-1].argmax(-1)
        best = np.where(missing.any(-1), last, best)
    values = np.take_along_axis(candidates, best[..., None], -1)
    indices = np.take_along_axis(flat, best[..., None], -1)
    return values.reshape(*lead, *counts), indices.reshape(*lead, *counts)


def _fractional_meta(x: Array, samples: Array, kernel: Sizes, counts: Sizes) -> list[Spec]:
    shape = (*x.shape[: x.ndim - len(kernel)], *counts)
    return [(shape, x.dtype), (shape, np.dtype(np.int64))]


def _fractional_x(g: Any, out: Any, x_like: Any, _samples: Any, kernel: Any, _counts: Any) -> Any:
    return _put(g[0], out[1], tuple(x_like.shape[-len(kernel) :]))


fractional_max_pool = define("fractional_max_pool", _fractional, meta=_fractional_meta)
derive("fractional_max_pool", _fractional_x)
