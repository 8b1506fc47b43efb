# SPDX-License-Identifier: BSD-3-Clause
"""Images read at places that are computed: spatial transformers."""

from __future__ import annotations

import itertools
from typing import Any

from modtree._ops.functions import stack
from modtree._ops.independent import independent
from modtree._tensor.ranges import linspace
from modtree._tensor.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The places that affine maps give to each pixel of an output: the ``grid`` of
    :func:`grid_sample`.

    Args:
        theta: (N, 2, 3) matrices for images, (N, 3, 4) for volumes.
        size: The output's sizes (N, C, H, W) or (N, C, D, H, W).
        align_corners: -1 and 1 are the centres of the first and last pixels; else their outer
            edges.

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3), the last axis in the order x, y, z.

    Raises:
        ValueError: Matrices and sizes do not fit together.
    """
    spatial = [int(n) for n in size[2:]]
    count = len(spatial)
    if count not in (2, 3) or tuple(theta.shape) != (int(size[0]), count, count + 1):
        raise ValueError(
            f"Expected a batch of affine matrices of shape {int(size[0])}x{count}x{count + 1} "
            f"for size {list(size)}. "
            f"Got {list(theta.shape)}."
        )
    axes = []
    for i, n in enumerate(spatial):
        steps = linspace(-1, 1, n, dtype=theta.dtype, device=theta.device)
        if not align_corners:
            steps = steps * ((n - 1) / n)
        if n == 1:
            steps = steps * 0
        shape = [1] * count
        shape[i] = n
        axes.append(steps.reshape(shape).expand(spatial))
    places = stack([*reversed(axes), axes[0] * 0 + 1], -1).reshape(-1, count + 1)
    return (places @ theta.mT).reshape(theta.shape[0], *spatial, count)


def _pixels(place: Tensor, n: int, align: bool) -> Tensor:
    """Places in [-1, 1] as pixel numbers."""
    return (place + 1) / 2 * (n - 1) if align else ((place + 1) * n - 1) / 2


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """x folded back into [low, high]."""
    span = high - low
    if span <= 0:
        return x * 0
    distance = (x - low).abs()
    turns = (distance / span).floor().detach()
    rest = distance - turns * span
    return rest.where(turns % 2 == 0, span - rest) + low


def _inside(x: Tensor, n: int, padding: str, align: bool) -> Tensor:
    """Pixel numbers moved into the image as the padding says."""
    if padding == "reflection":
        x = _reflected(x, 0, n - 1) if align else _reflected(x, -0.5, n - 0.5)
    return x if padding == "zeros" else x.clamp(0, n - 1)


def _read(flat: Tensor, sizes: Any, places: list[Tensor]) -> Tensor:
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


def _cubic(t: Tensor) -> list[Tensor]:
    """Weights of four neighbours at distances 1 + t, t, 1 - t, 2 - t."""
    a = -0.75

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Reads images or volumes at given places, between pixels by interpolation.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: (N, H_out, W_out, 2) or (N, D_out, H_out, W_out, 3) places; x, y, z from -1 to 1
            across the input.
        mode: "bilinear" (trilinear for volumes), "nearest", or "bicubic" for images.
        padding_mode: What is outside: "zeros", the "border" pixels, or a "reflection" of the image.
        align_corners: -1 and 1 are the centres of the outermost pixels; else their outer edges.

    Returns:
        (N, C, H_out, W_out) or (N, C, D_out, H_out, W_out).

    Raises:
        ValueError: An unknown mode or padding mode.
        RuntimeError: The shapes or dtypes do not fit together.
    """
    if mode not in _MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or "
            f"'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            "'reflection', but got: "
            f"'{padding_mode}'"
        )
    count = input.ndim - 2
    if count not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != count:
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and a grid with as many dimensions and "
            f"size {count} in the last one, but "
            f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            "sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.dtype != input.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype} and grid has {grid.dtype}"
        )
    if mode == "bicubic" and count == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    align = bool(align_corners)
    sizes = list(input.shape[2:])
    flat = input.flatten(2)
    points = grid.flatten(1, -2)
    places = [_pixels(points[..., count - 1 - i], n, align) for i, n in enumerate(sizes)]
    if mode == "bicubic":
        result = _bicubic(flat, sizes, places, padding_mode, align)
    else:
        places = [_inside(p, n, padding_mode, align) for p, n in zip(places, sizes, strict=True)]
        if mode == "nearest":
            result = independent(_read(flat, sizes, [p.detach().round() for p in places]), grid)
        else:
            result = _linear(flat, sizes, places)
    return result.reshape(*input.shape[:2], *grid.shape[1:-1])


def _linear(flat: Tensor, sizes: Any, places: list[Tensor]) -> Tensor:
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


def _bicubic(flat: Tensor, sizes: Any, places: list[Tensor], padding: str, align: bool) -> Tensor:
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
