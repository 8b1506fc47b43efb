# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions as matrix products of columns, each a copy of one window.

Columns are made for a few samples at a time, in a buffer that stays in the cache. Of small images
the samples stand innermost in memory: a row of the image is too short to copy and add well, the
same element of all samples is not. Then one product also serves all samples.
"""

from __future__ import annotations

import math

import numpy as np

from modtree.numpy.ops.generic import Array
from modtree.numpy.ops.matrix_product import matmul
from modtree.numpy.ops.windows import Sizes, add_windows, cropped, windows

#: Up to so many columns per sample, images count as small.
SMALL = 64
#: Bytes of columns made at a time.
CHUNK = 1 << 22


def _step(bytes_of_one: int, count: int, least: int) -> int:
    """How many samples' columns to make at a time."""
    return max(1, min(count, max(least, CHUNK // max(bytes_of_one, 1))))


def _samples_last(x: Array) -> Array:
    """(N, ...) as a contiguous (..., N)."""
    n, m = x.shape[0], math.prod(x.shape[1:])
    rows = x.reshape(n, m)
    if (m * x.itemsize) % 4096 == 0:
        # Rows at such distances compete for the same few lines of the cache.
        wide = np.empty((n, m + 16), x.dtype)
        wide[:, :m] = rows
        rows = wide[:, :m]
    return np.ascontiguousarray(rows.T).reshape(*x.shape[1:], n)


def _copies_nothing(kernel: Sizes, stride: Sizes) -> bool:
    """Whether the columns are the image itself."""
    return math.prod(kernel) == 1 and max(stride) == 1


def convolution(
    x: Array, weight: Array, stride: Sizes, dilation: Sizes, groups: int, counts: Sizes
) -> Array:
    """(N, C, *sizes), padded already, and (O, C / groups, *kernel) give (N, O, *counts)."""
    n, o, kernel = x.shape[0], weight.shape[0], weight.shape[2:]
    length, depth = math.prod(counts), math.prod(weight.shape[1:])
    matrices = weight.reshape(groups, o // groups, depth)
    if groups == 1 and n > 1 and length <= SMALL:
        y = np.empty((n, o, *counts), x.dtype)
        step = _step(depth * length * x.itemsize, n, 16)
        for i in range(0, n, step):
            part = np.moveaxis(_samples_last(x[i : i + step]), -1, 0)
            columns = np.moveaxis(windows(part, kernel, stride, dilation), 0, -1)
            product = matmul(matrices[0], columns.reshape(depth, length * len(part)))
            y[i : i + step] = np.moveaxis(product.reshape(o, *counts, len(part)), -1, 0)
        return y
    y = np.empty((n, groups, o // groups, length), x.dtype)
    if _copies_nothing(kernel, stride):
        matmul(matrices, x.reshape(n, groups, depth, length), out=y)
        return y.reshape(n, o, *counts)
    view = windows(x, kernel, stride, dilation)
    step = _step(depth * groups * length * x.itemsize, n, 1)
    columns = np.empty((min(step, n), *view.shape[1:]), x.dtype)
    for i in range(0, n, step):
        part = columns[: min(step, n - i)]
        np.copyto(part, view[i : i + step])
        part = part.reshape(len(part), groups, depth, length)
        matmul(matrices, part, out=y[i : i + step])
    return y.reshape(n, o, *counts)


def transposed(
    y: Array, weight: Array, stride: Sizes, dilation: Sizes, groups: int, sizes: Sizes
) -> Array:
    """(N, O, *counts) and (O, C / groups, *kernel) give (N, C, *sizes), padding included."""
    n, o, counts = y.shape[0], y.shape[1], y.shape[2:]
    c, kernel = weight.shape[1] * groups, weight.shape[2:]
    length, depth = math.prod(counts), math.prod(weight.shape[1:])
    matrices = weight.reshape(groups, o // groups, depth).swapaxes(1, 2)
    if _copies_nothing(kernel, stride) and sizes == counts:
        rows = y.reshape(n, groups, o // groups, length)
        return matmul(matrices, rows).reshape(n, c, *counts)
    if groups == 1 and n > 1 and length <= SMALL:
        x = np.empty((n, c, *sizes), y.dtype)
        step = _step(depth * length * y.itemsize, n, 16)
        for i in range(0, n, step):
            m = min(step, n - i)
            samples = _samples_last(y[i : i + step]).reshape(o, length * m)
            shares = matmul(matrices[0], samples).reshape(c, *kernel, *counts, m)
            sums = np.zeros((c, *sizes, shares.shape[-1]), y.dtype)
            add_windows(
                np.moveaxis(shares, -1, 0), sizes, stride, dilation, np.moveaxis(sums, -1, 0)
            )
            x[i : i + step] = np.moveaxis(sums, -1, 0)
        return x
    y = y.reshape(n, groups, o // groups, length)
    x = np.zeros((n, c, *sizes), y.dtype)
    step = _step(depth * groups * length * y.itemsize, n, 1)
    columns = np.empty((min(step, n), groups, depth, length), y.dtype)
    for i in range(0, n, step):
        part = columns[: min(step, n - i)]
        matmul(matrices, y[i : i + step], out=part)
        part = part.reshape(len(part), c, *kernel, *counts)
        add_windows(part, sizes, stride, dilation, x[i : i + step])
    return x


def over_batch(
    x: Array, y: Array, kernel: Sizes, stride: Sizes, dilation: Sizes, groups: int
) -> Array:
    """(N, C, *sizes), padded already, and (N, O, *counts) give (groups, O / groups, C / groups *
    elements of a window).
    """
    n, c, o, counts = x.shape[0], x.shape[1], y.shape[1], y.shape[2:]
    length, depth = math.prod(counts), c // groups * math.prod(kernel)
    if _copies_nothing(kernel, stride) and x.shape[2:] == counts and length > SMALL:
        whole_y = y.reshape(n, groups, o // groups, length)
        whole_x = x.reshape(n, groups, depth, length).swapaxes(2, 3)
        return np.add.reduce(matmul(whole_y, whole_x), axis=0)
    small = length <= SMALL
    step = _step(c * math.prod(kernel) * length * x.itemsize, n, 16 if small else 1)
    # With more rows than columns, OpenBLAS is up to a third faster than the other way round.
    total = np.zeros((groups, depth, o // groups), x.dtype)
    product = np.empty(total.shape, x.dtype)
    buffer = np.empty(groups * depth * length * min(step, n), x.dtype)
    for i in range(0, n, step):
        part, rows = x[i : i + step], y[i : i + step]
        if small:
            part, rows = np.moveaxis(_samples_last(part), -1, 0), _samples_last(rows)
        else:
            rows = rows.swapaxes(0, 1)
        view = windows(part, kernel, stride, dilation)
        # The stride and padding of a transposed convolution may leave room for more windows.
        view = cropped(view, (0,) * len(counts), counts)
        view = np.moveaxis(view, 0, -1 if small else 1 + len(kernel))
        m = length * min(step, n - i)
        columns = buffer[: groups * depth * m].reshape(groups, depth, m)
        np.copyto(columns.reshape(view.shape), view)
        rows = rows.reshape(groups, o // groups, m)
        total += matmul(columns, rows.swapaxes(1, 2), out=product)
    return total.swapaxes(1, 2)
