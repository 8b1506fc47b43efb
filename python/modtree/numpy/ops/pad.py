# SPDX-License-Identifier: BSD-3-Clause
"""The operation pad: constants, reflections, copies of the edge, circles."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.numpy.ops.generic import operation
from modtree.numpy.ops.registry import define, derive

_PADDED_BY_INDEX = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded_index(size: int, widths: tuple[int, int], mode: str) -> Any:
    """For each index of a padded dimension, the index whose element stands there."""
    return np.pad(np.arange(size), widths, mode=_PADDED_BY_INDEX[mode])


def _pad(x: Any, widths: Any, mode: str = "constant", value: Any = 0) -> Any:
    """Widths are (before, after) for each dimension, none negative."""
    if mode == "constant":
        shape = [n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)]
        result = np.full(shape, value, x.dtype) if value else np.zeros(shape, x.dtype)
        result[inner(x.shape, widths)] = x
        return result
    for axis, (n, (before, after)) in enumerate(zip(x.shape, widths, strict=True)):
        if before or after:
            limit = {"reflect": n - 1, "circular": n}.get(mode)
            if (limit is not None and max(before, after) > limit) or n == 0:
                raise RuntimeError(
                    "Padding size should be less than the corresponding input dimension for mode "
                    f"'{mode}', but got: padding ({before}, {after}) at dimension {axis} of input "
                    f"{list(x.shape)}"
                )
            x = np.take(x, padded_index(n, (before, after), mode), axis)
    return x


def inner(shape: tuple[int, ...], widths: Any) -> tuple[slice, ...]:
    """Where the original stands in what pad() made of it."""
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True))


def _pad_meta(x: Any, widths: Any, mode: str = "constant", value: Any = 0) -> Any:
    return [n + sum(pair) for n, pair in zip(x.shape, widths, strict=True)], x.dtype


define("pad", _pad, meta=_pad_meta)

# -- derivatives -----------------------------------------------------------------------------------

_getitem = operation("getitem")
_pick_backward = operation("index_select_backward")


def _pad_back(
    g: Any, _out: Any, x_like: Any, widths: Any, mode: str = "constant", value: Any = 0
) -> Any:
    shape = tuple(x_like.shape)
    if mode == "constant":
        return _getitem(g, inner(shape, widths))
    for axis, (size, (before, after)) in enumerate(zip(shape, widths, strict=True)):
        if before or after:
            target = (*g.shape[:axis], size, *g.shape[axis + 1 :])
            g = _pick_backward(g, target, axis, padded_index(size, (before, after), mode))
    return g


derive("pad", _pad_back)
