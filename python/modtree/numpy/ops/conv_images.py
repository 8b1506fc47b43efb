# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions over one or two axes of float32 or float64, which have native kernels: padding costs
nothing there, and either the whole convolution is native or its columns are made quickly.

The functions mean what those of :mod:`._columns` and :mod:`._depthwise` mean, but images come
without their padding. Columns are made for a few samples at a time, in a buffer that stays in the
cache, and products go straight to their place in the result.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from modtree._C import kernels
from modtree.numpy.ops.generic import Array
from modtree.numpy.ops.matrix_product import matmul
from modtree.numpy.ops.windows import Sizes, has_kernel

#: Bytes of columns made at a time.
CHUNK = 1 << 20
#: The same for the gradient of a weight: there every product is as large as the weight and has to
#: be added up.
SUM_CHUNK = 1 << 22
#: Whether the native convolution beats columns and the products of NumPy's BLAS here.
WIDE_PRODUCTS = kernels.has_wide_products()


def fits(x: Array) -> bool:
    """Whether these functions take such arrays."""
    return x.ndim <= 4 and has_kernel(x)


def _flat(*pairs: Sizes) -> list[Any]:
    """Strides, dilations and kernels of one axis as those of an image of one row."""
    return [p if len(p) == 2 else (1, *p) for p in pairs]


def _image(x: Array) -> Array:
    """(N, C, W) as (N, C, 1, W)."""
    return x if x.ndim == 4 else x[:, :, None]


def _step(bytes_of_one: int, count: int, chunk: int) -> int:
    """How many samples' columns to make at a time."""
    return max(1, min(count, chunk // max(bytes_of_one, 1)))


def _copies_nothing(kernel: Sizes, stride: Sizes, padding: Sizes) -> bool:
    """Whether the columns are the image itself."""
    return math.prod(kernel) == 1 and max(stride) == 1 and not any(padding)


def _pads_little(
    image: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes, output: Sizes
) -> bool:
    """Whether the images, as far as windows reach, are not much larger than images and columns.

    Huge dilations and strides look at a few places of a huge padding.
    """
    reach = [
        (n - 1) * s + (k - 1) * d + 1
        for k, s, d, n in zip(kernel, stride, dilation, output, strict=True)
    ]
    columns = math.prod(kernel) * math.prod(output)
    return math.prod(reach) <= 16 * (math.prod(image) + columns)


@lru_cache(maxsize=1024)
def _plan(
    image: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, counts: Sizes
) -> tuple[bool, Sizes, Sizes, Sizes, Sizes]:
    """Do the images take little memory with their padding? And stride, padding, dilation and counts
    along both axes.
    """
    stride, dilation, output = _flat(stride, dilation, counts)
    padding = padding if len(padding) == 2 else (0, *padding)
    little = _pads_little(image, kernel, stride, dilation, output)
    return little, stride, padding, dilation, output


def convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    counts: Sizes,
) -> Array:
    """(N, C, *sizes) and (O, C / groups, *kernel) give (N, O, *counts)."""
    image, matrix = _image(x), _image(weight)
    little, stride, padding, dilation, output = _plan(
        image.shape[2:], matrix.shape[2:], stride, padding, dilation, counts
    )
    options = (stride, padding, dilation)
    if groups > 1 and weight.shape[1] == 1:
        y = kernels.depthwise(image, matrix, *options, output)
    elif WIDE_PRODUCTS and little:
        y = kernels.convolution(image, matrix, bias, *options, groups, output)
        bias = None
    else:
        y = _by_columns(image, matrix, *options, groups, output)
    shape = (x.shape[0], weight.shape[0], *counts)
    if y.shape != shape:
        y = y.reshape(shape)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * len(counts))
    return y


def _by_columns(
    image: Array,
    weight: Array,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    output: Sizes,
) -> Array:
    n, o, kernel = image.shape[0], weight.shape[0], weight.shape[2:]
    length, depth = math.prod(output), math.prod(weight.shape[1:])
    y = np.empty((n, groups, o // groups, length), image.dtype)
    matrices = weight.reshape(groups, o // groups, depth)
    if _copies_nothing(kernel, stride, padding):
        return matmul(matrices, image.reshape(n, groups, depth, length), out=y)
    step = _step(depth * groups * length * image.itemsize, n, CHUNK)
    buffer = np.empty((min(step, n), groups * depth, length), image.dtype)
    for i in range(0, n, step):
        columns = buffer[: min(step, n - i)]
        kernels.im2col(image[i : i + step], kernel, stride, padding, dilation, output, out=columns)
        part = columns.reshape(len(columns), groups, depth, length)
        matmul(matrices, part, out=y[i : i + step])
    return y


def _turned(weight: Array, groups: int) -> Array:
    """The weight whose convolution is the transposed one: backwards, inputs and outputs
    exchanged.
    """
    o, c, *kernel = weight.shape
    swapped = weight.reshape(groups, o // groups, c, *kernel).swapaxes(1, 2)
    backwards = swapped[(...,) + (slice(None, None, -1),) * len(kernel)]
    return backwards.reshape(groups * c, o // groups, *kernel)


def transposed(
    y: Array,
    weight: Array,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    sizes: Sizes,
) -> Array:
    """(N, O, *counts) and (O, C / groups, *kernel) give (N, C, *sizes)."""
    n, o, counts, kernel = y.shape[0], y.shape[1], y.shape[2:], weight.shape[2:]
    c, length, depth = weight.shape[1] * groups, math.prod(counts), math.prod(weight.shape[1:])
    around = tuple(d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True))
    # Gathering is faster than adding up, unless there is more to gather.
    if max(stride) == 1 and min(around) >= 0 and o <= c:
        return convolution(
            y, _turned(weight, groups), None, stride, around, dilation, groups, sizes
        )
    matrices = weight.reshape(groups, o // groups, depth).swapaxes(1, 2)
    rows = y.reshape(n, groups, o // groups, length)
    image_sizes, stride, dilation, kernel, output = _flat(sizes, stride, dilation, kernel, counts)
    padding = padding if len(padding) == 2 else (0, *padding)
    if groups > 1 and weight.shape[1] == 1:
        x = kernels.depthwise_transposed(
            _image(y), _image(weight), (n, c, *image_sizes), stride, padding, dilation
        )
        return x.reshape(n, c, *sizes)
    x = np.empty((n, c, *image_sizes), y.dtype)
    step = _step(depth * groups * length * y.itemsize, n, CHUNK)
    buffer = np.empty((min(step, n), groups, depth, length), y.dtype)
    for i in range(0, n, step):
        columns, part = buffer[: min(step, n - i)], x[i : i + step]
        matmul(matrices, rows[i : i + step], out=columns)
        kernels.col2im(
            columns.reshape(len(part), groups * depth, length),
            part.shape,
            kernel,
            stride,
            padding,
            dilation,
            output,
            out=part,
        )
    return x.reshape(n, c, *sizes)


def over_batch(
    x: Array,
    y: Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    """(N, C, *sizes) and (N, O, *counts) give (O, C / groups, *kernel)."""
    n, c, o, counts = x.shape[0], x.shape[1], y.shape[1], y.shape[2:]
    shape = (o, c // groups, *kernel)
    length, depth = math.prod(counts), c // groups * math.prod(kernel)
    image, (stride, dilation, kernel, output) = _image(x), _flat(stride, dilation, kernel, counts)
    padding = padding if len(padding) == 2 else (0, *padding)
    if groups > 1 and c == groups:
        weight = kernels.depthwise_weight(image, _image(y), kernel, stride, padding, dilation)
        return weight.reshape(shape)
    rows = y.reshape(n, groups, o // groups, length)
    step = _step(groups * depth * length * x.itemsize, n, SUM_CHUNK)
    # With more rows than columns, OpenBLAS is up to a third faster than the other way round.
    total = np.zeros((groups, depth, o // groups), x.dtype)
    product = np.empty(total.shape, x.dtype)
    buffer = np.empty(groups * depth * length * min(step, n), x.dtype)
    for i in range(0, n, step):
        m = length * min(step, n - i)
        columns = buffer[: groups * depth * m].reshape(groups, depth, m)
        flat = columns.reshape(groups * depth, m)
        kernels.im2col(
            image[i : i + step], kernel, stride, padding, dilation, output, True, out=flat
        )
        part = rows[i : i + step].transpose(1, 2, 0, 3).reshape(groups, o // groups, m)
        total += matmul(columns, part.swapaxes(1, 2), out=product)
    return total.swapaxes(1, 2).reshape(shape)
