# SPDX-License-Identifier: BSD-3-Clause
"""pdist: the distances between all pairs of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import TensorBase
from modtree._ops.generic import Array, Spec
from modtree._ops.registry import define, derive, export


def _lengths(difference: Array, p: float) -> Array:
    """The p-norm of each row."""
    size = np.abs(difference)
    if p == 0:
        return (difference != 0).sum(-1).astype(difference.dtype)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return np.sqrt((size * size).sum(-1))
    if p == math.inf:
        return size.max(-1, initial=0)
    return (size**p).sum(-1) ** (1 / p)


def _pairs(x: Array) -> int:
    return len(x) * (len(x) - 1) // 2


# Row by row: the differences of all pairs at once take too much memory.


def _pdist(x: Array, p: float) -> Array:
    """Distances of rows 0-1, 0-2, ..., 1-2, ..."""
    result = np.empty(_pairs(x), x.dtype)
    end = 0
    for i in range(len(x) - 1):
        begin, end = end, end + len(x) - 1 - i
        result[begin:end] = _lengths(x[i + 1 :] - x[i], p)
    return result


def _slopes(difference: Array, length: Array, p: float) -> Array:
    """The derivative of each length in its difference; 0 where the length is 0."""
    if p == 1:
        return np.sign(difference)
    if p == math.inf:
        return np.sign(difference) * (np.abs(difference) == length)
    share = np.divide(difference, length, out=np.zeros_like(difference), where=length != 0)
    if p == 2:
        return share
    size = np.abs(share)
    powers = np.power(size, p - 1, out=np.zeros_like(size), where=size != 0)
    return np.sign(share) * powers


def _pdist_x(g: Any, out: Any, x: Any, p: Any) -> Any:
    result = np.zeros_like(x)
    if p == 0:
        return result
    end = 0
    for i in range(len(x) - 1):
        begin, end = end, end + len(x) - 1 - i
        slopes = _slopes(x[i + 1 :] - x[i], out[begin:end, None], p) * g[begin:end, None]
        result[i + 1 :] += slopes
        result[i] -= slopes.sum(0)
    return result


def _pdist_meta(x: Array, p: float) -> Spec:
    return (_pairs(x),), x.dtype


_pdist_op = define("pdist", _pdist, meta=_pdist_meta)
derive("pdist", _pdist_x, double_backward=False)


def pdist(input: Any, p: float = 2) -> Any:
    """The p-norm distances between all pairs of rows: those of the first to the others, then those
    of the second to the ones after it, and so on.

    Args:
        input: (N, M), of a floating dtype.
        p: The order of the norm, at least 0; inf for the largest difference.

    Returns:
        (N * (N - 1) / 2).
    """
    if not isinstance(input, TensorBase):
        raise TypeError(
            f"pdist(): argument 'input' must be a modtree.Tensor, got {type(input).__name__}"
        )
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.is_floating_point():
        raise RuntimeError(f"pdist only supports floating-point dtypes, got {input.dtype}")
    if p < 0:
        raise RuntimeError(f"pdist only supports non-negative p values, got {p}")
    return _pdist_op(input, float(p))


export("pdist", pdist, method=False)
