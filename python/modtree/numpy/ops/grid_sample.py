# SPDX-License-Identifier: BSD-3-Clause
"""grid_sample: kernels, and the same made of other operations for derivatives of its gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from modtree._C import kernels
from modtree.numpy.ops.composed import gradients_of
from modtree.numpy.ops.generic import Array, Spec, is_array, need_floating
from modtree.numpy.ops.independent import independent
from modtree.numpy.ops.registry import define, derive_jointly


def _grid_sample(x: Array, grid: Array, mode: str, padding: str, align: bool) -> Array:
    shape, dtype = _meta(x, grid, mode, padding, align)
    if 0 in shape and dtype.kind != "c":  # of any dtype
        return np.zeros(shape, dtype)
    need_floating("grid_sample", x)
    if x.dtype == np.float16:
        wide, places = x.astype(np.float32), grid.astype(np.float32)
        return kernels.grid_sample(wide, places, mode, padding, align).astype(np.float16)
    return kernels.grid_sample(x, grid, mode, padding, align)


def _meta(x: Array, grid: Array, mode: str, padding: str, align: bool) -> Spec:
    return (*x.shape[:2], *grid.shape[1:-1]), x.dtype


def _gradients(
    needs: Any, g: Any, _out: Any, x: Any, grid: Any, mode: str, padding: str, align: bool
) -> Any:
    if not is_array(g):
        found = gradients_of(
            lambda x, grid: _composed(x, grid, mode, padding, align), (x, grid), needs, g
        )
        return (*found, None, None, None)
    if not g.size:
        return np.zeros_like(x), np.zeros_like(grid), None, None, None
    if x.dtype == np.float16:
        g, x, grid = (a.astype(np.float32) for a in (g, x, grid))
    dx, dgrid = kernels.grid_sample_backward(
        g, x, grid, mode, padding, align, bool(needs[0]), bool(needs[1])
    )
    return dx, dgrid, None, None, None


grid_sample = define("grid_sample", _grid_sample, meta=_meta)
derive_jointly("grid_sample", _gradients, double_backward=True)


# -- of other operations ---------------------------------------------------------------------------


def _composed(x: Any, grid: Any, mode: str, padding: str, align: bool) -> Any:
    sizes = list(x.shape[2:])
    count = len(sizes)
    flat = x.flatten(2)
    points = grid.flatten(1, -2)
    places = [_pixels(points[..., count - 1 - i], n, align) for i, n in enumerate(sizes)]
    if mode == "bicubic":
        result = _bicubic(flat, sizes, places, padding, align)
    else:
        places = [_inside(p, n, padding, align) for p, n in zip(places, sizes, strict=True)]
        if mode == "nearest":
            result = independent(_read(flat, sizes, [p.detach().round() for p in places]), grid)
        else:
            result = _linear(flat, sizes, places)
    return result.reshape(*x.shape[:2], *grid.shape[1:-1])


def _pixels(place: Any, n: int, align: bool) -> Any:
    """Places in [-1, 1] as pixel numbers."""
    return (place + 1) / 2 * (n - 1) if align else ((place + 1) * n - 1) / 2


def _reflected(x: Any, low: float, high: float) -> Any:
    """x folded back into [low, high]."""
    span = high - low
    if span <= 0:
        return x * 0
    distance = (x - low).abs()
    turns = (distance / span).floor().detach()
    rest = distance - turns * span
    return rest.where(turns % 2 == 0, span - rest) + low


def _inside(x: Any, n: int, padding: str, align: bool) -> Any:
    """Pixel numbers moved into the image as the padding says."""
    if padding == "reflection":
        x = _reflected(x, 0, n - 1) if align else _reflected(x, -0.5, n - 0.5)
    return x if padding == "zeros" else x.clamp(0, n - 1)


def _read(flat: Any, sizes: Any, places: list[Any]) -> Any:
    """Pixels (N, C, points) at whole places, 0 outside."""
    index: Any = None
    known: Any = None
    for n, place in zip(sizes, places, strict=True):
        fits = (place >= 0) & (place < n)
        known = fits if known is None else known & fits
        number = place.clamp(0, n - 1)
        index = number if index is None else index * n + number
    index = index.long()[:, None, :].expand(-1, flat.shape[1], -1)
    return flat.gather(2, index) * known[:, None, :].to(flat.dtype)


def _cubic(t: Any) -> list[Any]:
    """Weights of four neighbours at distances 1 + t, t, 1 - t, 2 - t."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _linear(flat: Any, sizes: Any, places: list[Any]) -> Any:
    lower = [p.detach().floor() for p in places]
    shares = [p - low for p, low in zip(places, lower, strict=True)]
    result: Any = None
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        weight: Any = None
        for side, share in zip(corner, shares, strict=True):
            part = share if side else 1 - share
            weight = part if weight is None else weight * part
        pixels = _read(flat, sizes, [low + side for low, side in zip(lower, corner, strict=True)])
        term = pixels * weight[:, None, :]
        result = term if result is None else result + term
    return result


def _bicubic(flat: Any, sizes: Any, places: list[Any], padding: str, align: bool) -> Any:
    lower = [p.detach().floor() for p in places]
    rows, columns = (_cubic(p - low) for p, low in zip(places, lower, strict=True))
    result: Any = None
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            near = [
                _inside(low + (k - 1), n, padding, align)
                for low, k, n in zip(lower, (i, j), sizes, strict=True)
            ]
            term = _read(flat, sizes, near) * (row * column)[:, None, :]
            result = term if result is None else result + term
    return result
