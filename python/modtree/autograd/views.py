# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of views that change in place, while backward itself is recorded.

A view is a choice of elements of its base: the engine's copies of strided blocks become indexing,
which is an operation like others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree import _C
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.creation import zeros

Geometry = tuple[
    tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int
]  # sizes and strides of the base, of the view, its offset, bytes of an element


def _reach(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """Where a block begins and ends, in bytes from its first element."""
    steps = [(n - 1) * s for n, s in zip(sizes, strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)


def _positions(geometry: Geometry) -> Any:
    """For each element of the view the number of the base's element in its memory; that behind the
    last one where the view has memory that the base does not have.
    """
    base_sizes, base_strides, sizes, strides, offset, item = geometry
    count = math.prod(base_sizes)
    if count == 0 or math.prod(sizes) == 0:
        return np.full(sizes, count, np.int64)
    low, high = _reach(base_sizes, base_strides)
    view_low, view_high = (end + offset for end in _reach(sizes, strides))
    low, high = min(low, view_low), max(high, view_high)
    block = np.full((high - low) // item + 1, count, np.int64)

    def window(shape: Any, steps: Any, start: int) -> Any:
        return np.lib.stride_tricks.as_strided(
            block[(start - low) // item :], shape, [s // item * block.itemsize for s in steps]
        )

    window(base_sizes, base_strides, 0)[...] = np.arange(count).reshape(base_sizes)
    return window(sizes, strides, offset).copy()


def _flat(gradient: Any) -> Any:
    """The elements, and one more for memory that the base does not have."""
    rest = zeros(1, dtype=gradient.dtype, device=gradient.device)
    return ops["cat"]([ops["reshape"](gradient, (-1,)), rest], 0)


def _shaped(flat: Any, geometry: Geometry) -> Any:
    return ops["reshape"](flat[:-1], geometry[0])


def base_part(gradient: Any, geometry: Geometry) -> Any:
    """The view's part of the gradient of its base."""
    return ops["getitem"](_flat(gradient), (_positions(geometry),))


def base_with_part(gradient: Any, geometry: Geometry, part: Any) -> Any:
    """The gradient of the base with another one for the view's part; None is zero."""
    index = (_positions(geometry),)
    if part is None:
        part = zeros(index[0].shape, dtype=gradient.dtype, device=gradient.device)
    return _shaped(ops["index_put"](_flat(gradient), index, part, False), geometry)


def base_of_part(part: Any, geometry: Geometry) -> Any:
    """The gradient of a base that is used through a view only. Elements that share memory are added
    up.
    """
    count = math.prod(geometry[0])
    blank = zeros(count + 1, dtype=part.dtype, device=part.device)
    return _shaped(ops["index_put"](blank, (_positions(geometry),), part, True), geometry)


_C._install(base_part=base_part, base_with_part=base_with_part, base_of_part=base_of_part)
