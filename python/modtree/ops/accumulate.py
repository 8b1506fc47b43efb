# SPDX-License-Identifier: BSD-3-Clause
"""Sums of slices that fall on the same place: what the gradient of a lookup is made of.

``np.add.at`` walks over single elements; sorting the indices first lets NumPy add whole slices.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def add_rows(target: Any, index: Any, rows: Any) -> None:
    """target[index[i]] += rows[i], where indices may repeat and be negative. Shapes (n, *rest), (k,), (k, *rest)."""
    if index.size == 0 or rows.size == 0:
        return
    index = np.where(index < 0, index + target.shape[0], index)
    order = np.argsort(index, kind="stable")
    places = index[order]
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
    if len(starts) == len(places):
        target[index] += rows
    else:
        target[places[starts]] += np.add.reduceat(rows[order], starts, axis=0)


def sum_at(size: int, places: Any, values: Any) -> Any:
    """A vector of `size` zeros with each value added at its place; values may be complex."""
    places, values = places.reshape(-1), values.reshape(-1)
    if values.dtype.kind == "c":
        real = np.bincount(places, values.real, size)
        return (real + 1j * np.bincount(places, values.imag, size)).astype(values.dtype)
    return np.bincount(places, values, size).astype(values.dtype, copy=False)


def positions(shape: tuple[int, ...], index: Any) -> Any:
    """For each element that ``x[index]`` picks from an array of this shape, its number in C order."""
    return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)[index]
