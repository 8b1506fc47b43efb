# SPDX-License-Identifier: BSD-3-Clause
"""Views of NumPy arrays by strides."""

from __future__ import annotations

from typing import Any

import numpy as np

_FIRST_OF_OTHERS = 256  # NumPy's number for the first dtype of another package


def strided_view(x: np.ndarray, shape: Any, steps: Any) -> np.ndarray:
    """A view with these strides in bytes. NumPy's function knows a dtype by its letter, which the
    dtypes of other packages do not all have.
    """
    if x.dtype.num < _FIRST_OF_OTHERS:
        return np.lib.stride_tricks.as_strided(x, shape, steps)
    plain = x.view(f"u{x.itemsize}")
    return np.lib.stride_tricks.as_strided(plain, shape, steps).view(x.dtype)


def reach(shape: Any, strides: Any) -> int:
    """The number of elements from the first to the last."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def contiguous(shape: Any) -> tuple[int, ...]:
    """The strides of elements that lie one after the other."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))
