# SPDX-License-Identifier: BSD-3-Clause
"""Images of jax arrays read at places that are computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from modtree.jax_arrays.functions._common import Array


def affine_grid(theta: Array, size: Sequence[int], align_corners: bool | None = None) -> Array:
    count = len(size) - 2
    if count not in (2, 3) or theta.shape != (size[0], count, count + 1):
        raise ValueError(
            f"Expected a batch of affine matrices of shape {size[0]}x{count}x{count + 1} for size "
            f"{list(size)}, of 4 or 5 dimensions. Got {list(theta.shape)}."
        )
    axes = []
    for wanted in size[2:]:
        line = np.linspace(-1, 1, wanted) if wanted > 1 else np.zeros(1)
        axes.append(line if align_corners else line * (wanted - 1) / wanted)
    grids = np.meshgrid(*axes, indexing="ij")[::-1]  # x comes first
    base = np.stack([*grids, np.ones(tuple(size[2:]))], -1)
    return jnp.einsum("...k,nik->n...i", jnp.asarray(base, theta.dtype), theta)


def _inside(place: Array, size: int, padding_mode: str, align: bool) -> Array:
    """Places of an axis as the padding has them: within the image, or anywhere for zeros."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if span == 0:
            return jnp.zeros_like(place)
        way = jnp.abs(place - low)
        flips = jnp.floor(way / span)
        rest = way - flips * span
        place = jnp.where(flips % 2 == 0, rest, span - rest) + low
    return jnp.clip(place, 0, size - 1)


def _read(planes: Array, sizes: tuple[int, ...], places: Sequence[Array]) -> Array:
    """Elements of (N, C, elements) at whole places, one (N, outputs) for each axis; 0 outside."""
    flat: Any = 0
    is_inside: Any = True
    for place, size in zip(places, sizes, strict=True):
        # Far places do not fit into integers.
        whole = jnp.clip(place, -1, size).astype(jnp.int32)
        is_inside = is_inside & (whole >= 0) & (whole < size)
        flat = flat * size + jnp.clip(whole, 0, size - 1)
    found = jnp.take_along_axis(planes, flat[:, None], -1)
    return jnp.where(is_inside[:, None], found, 0)


def _cubic(part: Array) -> list[Array]:
    """The weights of the four elements around a place."""
    a = -0.75

    def near(x: Array) -> Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Array) -> Array:
        return (((x - 5) * x + 8) * x - 4) * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def grid_sample(
    input: Array,
    grid: Array,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Array:
    count, align = input.ndim - 2, bool(align_corners)
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if count not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != count:
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and a grid with as many dimensions and size "
            f"{count} in the last one, but got input with sizes {list(input.shape)} and grid with "
            f"sizes {list(grid.shape)}"
        )
    if grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if mode == "bicubic" and count == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    batch, channels, *sizes = input.shape
    planes = input.reshape(batch, channels, math.prod(sizes))
    places = []
    for axis, size in enumerate(sizes):
        place = grid[..., count - 1 - axis].reshape(batch, -1)  # x comes first
        place = (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
        padded = place if mode == "bicubic" else _inside(place, size, padding_mode, align)
        places.append(padded)
    # Of each axis the elements that count, and their weights.
    taps: list[list[tuple[Array, Any]]] = []
    for place, size in zip(places, sizes, strict=True):
        if mode == "nearest":
            taps.append([(jnp.round(place), 1)])
            continue
        low = jnp.floor(place)
        part = place - low
        if mode == "bilinear":
            taps.append([(low, 1 - part), (low + 1, part)])
        else:
            elements = [_inside(low + i, size, padding_mode, align) for i in range(-1, 3)]
            taps.append(list(zip(elements, _cubic(part), strict=True)))
    result: Any = 0
    for chosen in itertools.product(*taps):
        weight = math.prod(w for _, w in chosen)
        found = _read(planes, tuple(sizes), [place for place, _ in chosen])
        result = result + (found if mode == "nearest" else found * weight[:, None])
    return result.reshape(batch, channels, *grid.shape[1:-1])
