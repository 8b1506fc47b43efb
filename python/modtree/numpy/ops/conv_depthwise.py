# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions in which each output channel sees one input channel: sums of shifted images times
one number for each channel.

The functions mean what those of :mod:`._columns` mean; matrices of one row would leave nothing to a
matrix product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree.numpy.ops.generic import Array
from modtree.numpy.ops.windows import Sizes

#: Bytes of products at a time.
CHUNK = 1 << 18


def _spread(weight: Array, groups: int, place: Sizes) -> Array:
    """The numbers for one element of the window: (groups, O / groups, 1, ...)."""
    values = weight[(slice(None), 0) + place].reshape(groups, -1)
    return values.reshape(*values.shape, *(1,) * len(place))


def _target(place: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> Any:
    """The index of one element of all windows."""
    return (...,) + tuple(
        slice(p * d, p * d + s * (c - 1) + 1, s)
        for p, c, s, d in zip(place, counts, stride, dilation, strict=True)
    )


def _step(x: Array) -> int:
    """How many samples to work on at a time: as many as stay in the cache."""
    return max(1, CHUNK // max(x[0].nbytes, 1)) if len(x) else 1


def convolution(
    x: Array, weight: Array, stride: Sizes, dilation: Sizes, groups: int, counts: Sizes
) -> Array:
    """(N, groups, *sizes), padded already, and (O, 1, *kernel) give (N, O, *counts)."""
    n, o, kernel = x.shape[0], weight.shape[0], weight.shape[2:]
    y = np.zeros((n, groups, o // groups, *counts), x.dtype)
    step = _step(y)
    product = np.empty((min(step, n), *y.shape[1:]), x.dtype)
    for i in range(0, n, step):
        sums = y[i : i + step]
        for place in np.ndindex(*kernel):
            source = x[i : i + step][_target(place, counts, stride, dilation)]
            values = _spread(weight, groups, place)
            sums += np.multiply(source[:, :, None], values, out=product[: len(sums)])
    return y.reshape(n, o, *counts)


def transposed(
    y: Array, weight: Array, stride: Sizes, dilation: Sizes, groups: int, sizes: Sizes
) -> Array:
    """(N, O, *counts) and (O, 1, *kernel) give (N, groups, *sizes), padding included."""
    n, o, counts, kernel = y.shape[0], y.shape[1], y.shape[2:], weight.shape[2:]
    x = np.zeros((n, groups, *sizes), y.dtype)
    if 0 in y.shape:
        return x
    y = y.reshape(n, groups, o // groups, *counts)
    step = _step(y)
    product = np.empty((min(step, n), *y.shape[1:]), y.dtype)
    for i in range(0, n, step):
        part = y[i : i + step]
        for place in np.ndindex(*kernel):
            values = _spread(weight, groups, place)
            shares = np.multiply(part, values, out=product[: len(part)])
            target = x[i : i + step][_target(place, counts, stride, dilation)]
            target += shares[:, :, 0] if o == groups else shares.sum(2)
    return x


def over_batch(
    x: Array, y: Array, kernel: Sizes, stride: Sizes, dilation: Sizes, groups: int
) -> Array:
    """(N, groups, *sizes), padded already, and (N, O, *counts) give (groups, O / groups, elements
    of a window).
    """
    n, o, counts = y.shape[0], y.shape[1], y.shape[2:]
    total = np.zeros((groups, o // groups, math.prod(kernel)), x.dtype)
    if 0 in y.shape:
        return total
    y = y.reshape(n, groups, o // groups, *counts)
    step = _step(y)
    product = np.empty((min(step, n), *y.shape[1:]), x.dtype)
    axes = (0, *range(3, y.ndim))
    for i in range(0, n, step):
        part = y[i : i + step]
        for k, place in enumerate(np.ndindex(*kernel)):
            source = x[i : i + step][_target(place, counts, stride, dilation)]
            shares = np.multiply(part, source[:, :, None], out=product[: len(part)])
            total[..., k] += shares.sum(axes)
    return total
