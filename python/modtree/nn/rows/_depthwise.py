# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions in which each output channel sees one input channel: sums of shifted images times one number for each channel.

The functions mean what those of :mod:`._columns` mean; matrices of one row would leave nothing to a matrix product.
"""

from __future__ import annotations

import math

import numpy as np

from ._common import Array
from ._windows import Sizes, windows


def _spread(weight: Array, groups: int, place: Sizes) -> Array:
    """The numbers for one element of the window: (groups, O / groups, 1, ...)."""
    values = weight[(slice(None), 0, *place)].reshape(groups, -1)
    return values.reshape(*values.shape, *(1,) * len(place))


def _target(place: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> tuple[slice, ...]:
    """Where one element of all windows stands."""
    return tuple(
        slice(p * d, p * d + s * (c - 1) + 1, s)
        for p, c, s, d in zip(place, counts, stride, dilation, strict=True)
    )


def convolution(
    x: Array, weight: Array, stride: Sizes, dilation: Sizes, groups: int, counts: Sizes
) -> Array:
    """(N, groups, *sizes), padded already, and (O, 1, *kernel) give (N, O, *counts)."""
    n, o, kernel = x.shape[0], weight.shape[0], weight.shape[2:]
    view = windows(x, kernel, stride, dilation)
    y = np.zeros((n, groups, o // groups, *counts), x.dtype)
    product = np.empty(y.shape, x.dtype)
    for place in np.ndindex(*kernel):
        part = view[(slice(None), slice(None), *place)][:, :, None]
        y += np.multiply(part, _spread(weight, groups, place), out=product)
    return y.reshape(n, o, *counts)


def transposed(
    y: Array, weight: Array, stride: Sizes, dilation: Sizes, groups: int, sizes: Sizes
) -> Array:
    """(N, O, *counts) and (O, 1, *kernel) give (N, groups, *sizes), padding included."""
    n, o, counts, kernel = y.shape[0], y.shape[1], y.shape[2:], weight.shape[2:]
    parts = y.reshape(n, groups, o // groups, *counts)
    x = np.zeros((n, groups, *sizes), y.dtype)
    if 0 in y.shape:
        return x
    product = np.empty(parts.shape, y.dtype)
    for place in np.ndindex(*kernel):
        np.multiply(parts, _spread(weight, groups, place), out=product)
        target = x[(..., *_target(place, counts, stride, dilation))]
        target += product[:, :, 0] if o == groups else product.sum(2)
    return x


def over_batch(
    x: Array, y: Array, kernel: Sizes, stride: Sizes, dilation: Sizes, groups: int
) -> Array:
    """(N, groups, *sizes), padded already, and (N, O, *counts) give (groups, O / groups, elements of a window)."""
    n, o, counts = y.shape[0], y.shape[1], y.shape[2:]
    parts = y.reshape(n, groups, o // groups, *counts)
    total = np.zeros((groups, o // groups, math.prod(kernel)), x.dtype)
    if 0 in y.shape:
        return total
    product = np.empty(parts.shape, x.dtype)
    axes = (0, *range(3, parts.ndim))
    for i, place in enumerate(np.ndindex(*kernel)):
        source = x[(..., *_target(place, counts, stride, dilation))]
        total[..., i] = np.multiply(parts, source[:, :, None], out=product).sum(axes)
    return total
