# SPDX-License-Identifier: BSD-3-Clause
"""Sliding windows over the last axes of an array, and their transpose: what convolutions, pooling,
unfold and fold are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from modtree._C import TensorBase
from modtree.numpy.ops.generic import Array

Sizes = tuple[int, ...]


def run(op: Any, *args: Any) -> Any:
    """An operation called from within a derivative: recorded when the derivative is derived
    itself (it gets tensors then), else just the function.
    """
    tensors = any(isinstance(a, TensorBase) for a in args)
    return op(*args) if tensors else op.forward(*args)


def conj(x: Any) -> Any:
    """The conjugate of an array or tensor; itself when it is real."""
    is_complex = x.is_complex() if isinstance(x, TensorBase) else x.dtype.kind == "c"
    return x.conj() if is_complex else x


def wide(*arrays: Any) -> list[Any]:
    """float16 arrays as float32, in which they are added up."""
    return [a.astype(np.float32) if a is not None and a.dtype == np.float16 else a for a in arrays]


def has_kernel(x: Array) -> bool:
    """Whether it is of a dtype that the kernels know."""
    return x.dtype == np.float32 or x.dtype == np.float64


def half_with_single(x: Array, parameter: Array) -> bool:
    """Parameters of a normalization may have float32 where its input has float16."""
    return x.dtype == np.float16 and parameter.dtype == np.float32


def window_count(size: int, kernel: int, stride: int, dilation: int) -> int:
    """How many windows fit into ``size``."""
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def padded(x: Array, before: Sequence[int], after: Sequence[int], value: Any = 0) -> Array:
    """The last axes of ``x`` with ``before`` and ``after`` elements of ``value`` around them;
    itself when there are none.
    """
    if not any(before) and not any(after):
        return x
    lead = x.ndim - len(before)
    sizes = x.shape[lead:]
    shape = (*x.shape[:lead], *(b + n + a for b, n, a in zip(before, sizes, after, strict=True)))
    result = np.zeros(shape, x.dtype) if value == 0 else np.full(shape, value, x.dtype)
    cropped(result, before, sizes)[...] = x
    return result


def cropped(x: Array, before: Sequence[int], sizes: Sequence[int]) -> Array:
    """The view of the last axes that starts at ``before`` and has ``sizes``."""
    inside = tuple(slice(b, b + n) for b, n in zip(before, sizes, strict=True))
    return x[(...,) + inside]


def windows(x: Array, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    """All windows over the last axes, without copying: (..., *kernel, *number of windows)."""
    lead = x.ndim - len(kernel)
    steps = x.strides[lead:]
    counts = tuple(map(window_count, x.shape[lead:], kernel, stride, dilation))
    shape = (*x.shape[:lead], *kernel, *counts)
    strides = (
        *x.strides[:lead],
        *(n * d for n, d in zip(steps, dilation, strict=True)),
        *(n * s for n, s in zip(steps, stride, strict=True)),
    )
    if x.flags.c_contiguous and x.size:  # as_strided takes five times as long
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return as_strided(x, shape, strides, writeable=False)


def add_windows(
    columns: Array, sizes: Sizes, stride: Sizes, dilation: Sizes, out: Array | None = None
) -> Array:
    """The transpose of :func:`windows`: adds (..., *kernel, *counts) up into (..., *sizes); ``out``
    holds zeros.
    """
    n = len(sizes)
    lead = columns.ndim - 2 * n
    kernel, counts = columns.shape[lead : lead + n], columns.shape[lead + n :]
    result = np.zeros((*columns.shape[:lead], *sizes), columns.dtype) if out is None else out
    if 0 in columns.shape:
        return result
    for place in np.ndindex(*kernel):
        inside = tuple(
            slice(p * d, p * d + s * (c - 1) + 1, s)
            for p, d, s, c in zip(place, dilation, stride, counts, strict=True)
        )
        target = result[(...,) + inside]
        target += columns[(slice(None),) * lead + place]
    return result
