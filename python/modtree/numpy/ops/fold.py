# SPDX-License-Identifier: BSD-3-Clause
"""Windows of images as columns, and columns added up to images: either is the derivative of the
other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree.numpy.ops.generic import Array, Spec, need_arrays
from modtree.numpy.ops.registry import define, derive
from modtree.numpy.ops.windows import (
    Sizes,
    add_windows,
    cropped,
    padded,
    run,
    window_count,
    windows,
)


def _counts(sizes: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Sizes:
    return tuple(
        window_count(n + 2 * p, k, s, d)
        for n, k, d, p, s in zip(sizes, kernel, dilation, padding, stride, strict=True)
    )


def _unfold(x: Array, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Array:
    """(..., C, *sizes) gives (..., C * windows' elements, number of windows)."""
    shape = _unfold_meta(x, kernel, dilation, padding, stride)[0]
    view = windows(padded(x, padding, padding), kernel, stride, dilation)
    return np.ascontiguousarray(view).reshape(shape)


def _unfold_meta(x: Array, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Spec:
    need_arrays("unfold", x)
    sizes = x.shape[x.ndim - len(kernel) :]
    counts = _counts(sizes, kernel, dilation, padding, stride)
    if min(counts) < 1:
        raise RuntimeError(
            f"Given input with spatial size {sizes}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as {counts}, but "
            "its components must be at least one."
        )
    *lead, channels = x.shape[: x.ndim - len(kernel)]
    return (*lead, channels * math.prod(kernel), math.prod(counts)), x.dtype


def _fold(
    columns: Array, sizes: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Array:
    """(..., C * windows' elements, number of windows) gives (..., C, *sizes); where windows
    overlap, they add up.
    """
    shape = _fold_meta(columns, sizes, kernel, dilation, padding, stride)[0]
    counts = _counts(sizes, kernel, dilation, padding, stride)
    whole = tuple(n + 2 * p for n, p in zip(sizes, padding, strict=True))
    channels = shape[: len(shape) - len(sizes)]
    x = add_windows(columns.reshape(*channels, *kernel, *counts), whole, stride, dilation)
    return np.ascontiguousarray(cropped(x, padding, sizes))


def _fold_meta(
    columns: Array, sizes: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Spec:
    need_arrays("fold", columns)
    *lead, rows, found = columns.shape
    counts = _counts(sizes, kernel, dilation, padding, stride)
    elements = math.prod(kernel)
    if rows % elements or rows == 0:
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={rows} and kernel_size={kernel}."
        )
    if min(counts) < 1 or math.prod(counts) != found:
        terms = " * ".join(map(str, counts))
        raise RuntimeError(
            f"Given output_size={sizes}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, stride={stride}, expected size of input's dimension 2 to match "
            f"the calculated number of sliding blocks {terms} = {math.prod(counts)}, but got "
            f"input.size(2)={found}."
        )
    return (*lead, rows // elements, *sizes), columns.dtype


unfold = define("unfold_windows", _unfold, meta=_unfold_meta)
fold = define("fold_windows", _fold, meta=_fold_meta)


def _unfold_x(g: Any, _out: Any, x_like: Any, kernel: Any, *rest: Any) -> Any:
    return run(fold, g, tuple(x_like.shape[-len(kernel) :]), kernel, *rest)


derive("unfold_windows", _unfold_x)
derive("fold_windows", lambda g, _out, _columns, _sizes, *rest: run(unfold, g, *rest))
