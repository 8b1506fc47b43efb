# SPDX-License-Identifier: BSD-3-Clause
"""Padding, patches and sizes of images that are jax arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from modtree.jax_arrays.functions._common import Array, Ints, batched, each
from modtree.jax_arrays.functions.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(
    input: Array, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Array:
    if mode not in _MODES:
        raise NotImplementedError(f"pad: expected a mode of {', '.join(_MODES)}, got {mode!r}")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    widths = [(0, 0)] * (input.ndim - len(pairs)) + pairs[::-1]
    if mode == "constant":
        fill = jnp.asarray(0 if value is None else value, input.dtype)
        return jax.lax.pad(input, fill, [(low, high, 0) for low, high in widths])
    # Negative widths cut off.
    cuts = tuple(
        slice(-min(low, 0), size + min(high, 0))
        for size, (low, high) in zip(input.shape, widths, strict=True)
    )
    grown = [(max(low, 0), max(high, 0)) for low, high in widths]
    return jnp.pad(input[cuts], grown, mode=_MODES[mode])


# -- sizes -----------------------------------------------------------------------------------------


def _places(size: int, wanted: int, scale: float | None, align: bool) -> np.ndarray:
    """Where the centres of the wanted elements are in the input."""
    number = np.arange(wanted, dtype=np.float64)
    if align:
        return number * ((size - 1) / max(wanted - 1, 1))
    step = size / wanted if scale is None else 1.0 / scale
    return (number + 0.5) * step - 0.5


def _linear(size: int, places: np.ndarray) -> np.ndarray:
    places = np.clip(places, 0, None)
    low = np.minimum(places.astype(int), size - 1)
    high, part = np.minimum(low + 1, size - 1), places - low
    weights = np.zeros((len(places), size))
    rows = np.arange(len(places))
    np.add.at(weights, (rows, low), 1 - part)
    np.add.at(weights, (rows, high), part)
    return weights


def _cubic_weight(distance: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _cubic(size: int, places: np.ndarray) -> np.ndarray:
    base = np.floor(places).astype(int)
    weights = np.zeros((len(places), size))
    for offset in range(-1, 3):
        factor = _cubic_weight(places - (base + offset), -0.75)
        np.add.at(weights, (np.arange(len(places)), np.clip(base + offset, 0, size - 1)), factor)
    return weights


def _covering(
    size: int, wanted: int, scale: float | None, align: bool, is_cubic: bool
) -> np.ndarray:
    """The weights of all elements that a wanted one covers, at least as many as without."""
    if align:
        step = (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        step = size / wanted if scale is None else 1.0 / scale
    shrink = max(step, 1.0)
    half = (2.0 if is_cubic else 1.0) * shrink
    centre = (np.arange(wanted) + 0.5) * step
    begin = np.maximum((centre - half + 0.5).astype(int), 0)
    end = np.minimum((centre + half + 0.5).astype(int), size)
    place = np.arange(size)
    distance = (place - centre[:, None] + 0.5) / shrink
    weights = _cubic_weight(distance, -0.5) if is_cubic else np.maximum(1 - np.abs(distance), 0)
    weights = np.where((place >= begin[:, None]) & (place < end[:, None]), weights, 0)
    return weights / weights.sum(1, keepdims=True)


def _nearest(size: int, wanted: int, scale: float | None, exact: bool) -> np.ndarray:
    # In float32, as torch has it: which element is the nearest depends on the rounding.
    step = np.float32(size / wanted) if scale is None else np.float32(1.0 / scale)
    number = np.arange(wanted, dtype=np.float32) + np.float32(0.5 if exact else 0)
    return np.minimum((number * step).astype(int), size - 1)


_SMOOTH = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def interpolate(
    input: Array,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Array:
    n = input.ndim - 2
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(
            f"interpolate: antialias is for the modes 'bilinear' and 'bicubic', got {mode!r}"
        )
    if mode not in ("nearest", "nearest-exact", "area", *_SMOOTH) or _SMOOTH.get(mode, n) != n:
        raise NotImplementedError(f"interpolate: no mode {mode!r} for {input.ndim} dimensions")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: expected either size or scale_factor")
    scales: Sequence[float | None] = (None,) * n
    if size is not None:
        sizes = each(size, n)
    else:
        given = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * n
        sizes = tuple(math.floor(s * f) for s, f in zip(input.shape[2:], given, strict=True))
        scales = scales if recompute_scale_factor else tuple(map(float, given))
    if mode == "area":
        from_pooling = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
        return from_pooling[n - 1](input, sizes)
    x = input
    for axis, (wanted, scale) in enumerate(zip(sizes, scales, strict=True), 2):
        old = x.shape[axis]
        if antialias and wanted == old:
            continue
        if mode.startswith("nearest"):
            x = jnp.take(x, jnp.asarray(_nearest(old, wanted, scale, mode != "nearest")), axis)
            continue
        if antialias:
            weights = _covering(old, wanted, scale, bool(align_corners), mode == "bicubic")
        else:
            places = _places(old, wanted, scale, bool(align_corners))
            weights = (_cubic if mode == "bicubic" else _linear)(old, places)
        x = jnp.moveaxis(jnp.moveaxis(x, axis, -1) @ jnp.asarray(weights.T, x.dtype), -1, axis)
    return x


# -- patches ---------------------------------------------------------------------------------------


def unfold(
    input: Array, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Array:
    x, has_batch = batched("unfold", input, 2)
    patches = jax.lax.conv_general_dilated_patches(
        x,
        each(kernel_size, 2),
        each(stride, 2),
        [(p, p) for p in each(padding, 2)],
        rhs_dilation=each(dilation, 2),
    )
    columns = patches.reshape(*patches.shape[:2], -1)
    return columns if has_batch else columns[0]


def fold(
    input: Array,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Array:
    kernel, sizes = each(kernel_size, 2), each(output_size, 2)
    columns = input if input.ndim == 3 else input[None]
    shape = (columns.shape[0], columns.shape[1] // math.prod(kernel), *sizes)
    # The transpose of unfold.
    image = jax.ShapeDtypeStruct(shape, input.dtype)
    back = jax.linear_transpose(lambda x: unfold(x, kernel, dilation, padding, stride), image)
    (result,) = back(columns)
    return result if input.ndim == 3 else result[0]


def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    r = upscale_factor
    *lead, channels, height, width = input.shape
    x = input.reshape(*lead, channels // r**2, r, r, height, width)
    k = len(lead)
    x = x.transpose(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return x.reshape(*lead, channels // r**2, height * r, width * r)


def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    r = downscale_factor
    *lead, channels, height, width = input.shape
    x = input.reshape(*lead, channels, height // r, r, width // r, r)
    k = len(lead)
    x = x.transpose(*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return x.reshape(*lead, channels * r**2, height // r, width // r)


def channel_shuffle(input: Array, groups: int) -> Array:
    x = input.reshape(input.shape[0], groups, -1, *input.shape[2:])
    return jnp.swapaxes(x, 1, 2).reshape(input.shape)
