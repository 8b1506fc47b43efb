# SPDX-License-Identifier: BSD-3-Clause
"""By how much the values of two arrays differ, in memory that does not grow with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_PIECE = 1 << 20  # elements that are compared at a time
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class ValueChange:
    """By how much the values of an entry differ.

    Attributes:
        elements: how many elements the entry has.
        different: how many of them differ by more than the tolerance.
        max_abs: the largest difference of two elements, inf where one of them is NaN or infinite.
        max_rel: the largest difference in relation to the element of the second side, where that
            is not 0; inf where it is 0 in all of them.
    """

    elements: int
    different: int
    max_abs: float
    max_rel: float


def value_change(
    a: np.ndarray, b: np.ndarray, rtol: float = 0.0, atol: float = 0.0
) -> ValueChange | None:
    """What differs between two arrays of one shape; None when nothing does.

    Two elements are the same when ``|a - b| <= atol + rtol * |b|``, or when both are NaN.
    """
    if _same_bits(a, b):
        return None
    a, b = a.reshape(-1), b.reshape(-1)
    different, max_abs, max_rel = 0, 0.0, -math.inf
    for start in range(0, a.size, _PIECE):
        x, y = (_plain(side[start : start + _PIECE]) for side in (a, b))
        unequal = (x != y) & ~((x != x) & (y != y))
        if not unequal.any():
            continue
        x, y = x[unequal], y[unequal]
        distance, size = _distance(x, y), np.abs(y.astype(np.complex128 if _complex(y) else float))
        far = distance > atol + rtol * np.where(np.isfinite(size), size, 0.0)
        different += int(far.sum())
        max_abs = max(max_abs, float(distance.max()))
        if (measured := size > 0).any():
            relative = _quotient(distance[measured], size[measured])
            max_rel = max(max_rel, float(relative.max()))
    if not different:
        return None
    return ValueChange(int(a.size), different, max_abs, max_rel if max_rel >= 0 else math.inf)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    kind = _UNSIGNED.get(a.dtype.itemsize)
    if a.dtype != b.dtype or kind is None or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return False
    a, b = a.reshape(-1).view(kind), b.reshape(-1).view(kind)
    return all(
        np.array_equal(a[start : start + _PIECE], b[start : start + _PIECE])
        for start in range(0, a.size, _PIECE)
    )


def _plain(array: np.ndarray) -> np.ndarray:
    """Numbers that NumPy computes with: the dtypes of ml_dtypes all fit into float32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _complex(array: np.ndarray) -> bool:
    return array.dtype.kind == "c"


def _distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|x - y| of elements that differ, as floats; NaN and infinities are infinitely far."""
    if x.dtype == y.dtype and x.dtype.kind in "iu":
        # The true difference fits into the unsigned integers, and wraps into them.
        low, high = np.minimum(x, y).astype(np.int64), np.maximum(x, y).astype(np.int64)
        if x.dtype == np.uint64:
            low, high = np.minimum(x, y), np.maximum(x, y)
        return (high.view(np.uint64) - low.view(np.uint64)).astype(float)
    wide = np.complex128 if _complex(x) or _complex(y) else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(x.astype(wide) - y.astype(wide))
    distance[np.isnan(distance)] = np.inf
    return distance


def _quotient(distance: np.ndarray, size: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        relative = distance / size
    relative[np.isnan(relative)] = np.inf  # of two infinities
    return relative
