# SPDX-License-Identifier: BSD-3-Clause
"""Images: resizing, moving channels into space and back, patches as columns and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from modtree._C import as_dtype, as_tuple
from modtree.nn.functional._common import Sizes, need_tensor, pool_sizes, whole_size
from modtree.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from modtree.numpy.argument_types import Ints
from modtree.numpy.ops import fold as fold_ops
from modtree.numpy.ops import resample as resample_ops
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "channel_shuffle",
    "fold",
    "interpolate",
    "pixel_shuffle",
    "pixel_unshuffle",
    "unfold",
]

#: Modes in which corners have no meaning.
_PLAIN = ("nearest", "nearest-exact", "area")
_AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


# -- resizing --------------------------------------------------------------------------------------


def interpolate(
    input: Tensor,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes the axes after the first two.

    Args:
        input: (N, C, ...) with one to three more axes.
        size: The new sizes, one number or one for each axis.
        scale_factor: Factors instead of sizes; the new size is rounded down.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"`` (3-D input), ``"bilinear"``,
            ``"bicubic"`` (4-D), ``"trilinear"`` (5-D) or ``"area"`` (means over equal parts).
        align_corners: The outer elements stay where they are and distances are scaled between them;
            for the linear and cubic modes only.
        recompute_scale_factor: Compute the factors anew from the (rounded) sizes.
        antialias: When sizes shrink, average over as much as one new element covers (``"bilinear"``
            and ``"bicubic"``).
    """
    need_tensor("interpolate", input)
    n = input.dim() - 2
    if mode in _PLAIN and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | "
            "bilinear | bicubic | trilinear"
        )
    _check_target(input, n, size, scale_factor, recompute_scale_factor)
    if antialias and (mode not in ("bilinear", "bicubic") or n != 2):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D "
            "tensor as input"
        )
    modes = (*_PLAIN, *_AXES)
    if mode not in modes or not 1 <= n <= 3 or (mode == "bicubic" and n != 2):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{input.dim()}D) for the modes: {' | '.join(modes)} (got {mode})"
        )
    if n != _AXES.get(mode, n):
        raise NotImplementedError(
            f"Got {input.dim()}D input, but {mode} mode needs {_AXES[mode] + 2}D input"
        )
    sizes, factors = _target(input, n, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[n - 1](input, sizes)
    if min(sizes) < 1 or 0 in input.shape[1:]:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input "
            f"{list(input.shape[1:])} output {list(sizes)}"
        )
    if antialias and tuple(sizes) == tuple(input.shape[2:]):
        return input.clone()  # of any dtype
    of_bytes = input.dtype == as_dtype("uint8") and mode not in ("linear", "trilinear")
    if not (input.is_floating_point() or of_bytes):
        raise NotImplementedError(
            f'"interpolate" not implemented for {input.dtype} with mode={mode!r}: convert with '
            f".float()"
        )
    return _resize(input, sizes, factors, mode, bool(align_corners), antialias)


def _check_target(
    input: Tensor, n: int, size: Any, scale_factor: Any, recompute: bool | None
) -> None:
    """One of the two is given, for all axes or for each."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    given, name = (scale_factor, "scale_factor") if size is None else (size, "output size")
    if isinstance(given, (tuple, list)) and len(given) != n:
        other = "output" if size is not None else "scale_factor"
        raise ValueError(
            f"Input and {other} must have the same number of spatial dimensions, but got input "
            f"with spatial dimensions of {list(input.shape[2:])} and {name} of {given}. Please "
            f"provide the input in (N, C, d1, d2, ..., dK) format and {name} in (o1, o2, ..., oK) "
            f"format."
        )
    if size is not None and recompute:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")


def _target(
    input: Tensor, n: int, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[Sizes, list[float | None]]:
    """The new sizes, and the factors that were given (None where the sizes were)."""
    if size is not None:
        sizes = as_tuple(size) if isinstance(size, (tuple, list)) else (size,) * n
        return tuple(whole_size("interpolate", "size", s) for s in sizes), [None] * n
    factors = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * n
    spatial = tuple(input.shape[2:])
    wanted = [float(a) * f for a, f in zip(spatial, factors, strict=True)]
    if not recompute and not all(abs(size) < 2**63 for size in wanted):
        raise RuntimeError(
            f"interpolate: scale_factor={scale_factor} gives sizes beyond 64 bits: {wanted}"
        )
    sizes = tuple(map(math.floor, wanted))
    return sizes, [None] * n if recompute else [float(f) for f in factors]


#: Modes in which an axis that keeps its size is kept, whatever its factor.
_LINEAR = ("linear", "bilinear", "trilinear")


def _resize(
    input: Tensor,
    sizes: Sizes,
    factors: list[float | None],
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Tensor:
    # As in torch, positions have the precision of the input. Of small images the nearest neighbours
    # are found in float32, and those of the same or twice the size without the factor.
    small = mode in ("nearest", "nearest-exact") and len(sizes) == 2 and sum(sizes) <= 128
    of_bytes = input.dtype == as_dtype("uint8") and mode in _AXES
    precise = of_bytes or (input.element_size() == 8 and not small)
    real = np.float64 if precise else np.float32
    taps_of = _nearest_of_small if small and mode == "nearest" else _TAPS[mode]
    axes = list(enumerate(zip(sizes, factors, strict=True), 2))
    # Bytes are rounded after each axis, of which the last is the first.
    for axis, (new, factor) in reversed(axes) if of_bytes else axes:
        old = input.shape[axis]
        if antialias:
            if new == old:  # whatever its factor
                continue
            taps, weights = _antialiased(old, new, factor, mode, align_corners)
        else:
            if new == old and (factor in (None, 1) or of_bytes or mode in _LINEAR):
                continue
            taps, weights = taps_of(old, new, factor, align_corners, real)
        input = resample_ops.resample(input, axis, taps, weights, old)
    return input


def _step(old: int, new: int, factor: float | None, align_corners: bool, real: Any) -> Any:
    """The distance of two new elements, in old ones."""
    if align_corners:
        return real(old - 1) / real(new - 1) if new > 1 else real(0)
    return real(1.0 / factor) if factor is not None and factor > 0 else real(old) / real(new)


def _nearest(
    old: int,
    new: int,
    factor: float | None,
    align_corners: bool,
    real: Any,
    *,
    shift: float = 0.0,
) -> Any:
    step = _step(old, new, factor, False, real)
    places = (np.arange(new, dtype=real) + real(shift)) * step
    # In whatever precision they are computed, torch rounds them to float32 first.
    places = np.floor(places.astype(np.float32))
    return np.minimum(places.astype(np.int64), old - 1)[None], None


def _nearest_exact(*args: Any) -> Any:
    return _nearest(*args, shift=0.5)


def _nearest_of_small(old: int, new: int, *args: Any) -> Any:
    if old and new in (old, 2 * old):
        return (np.arange(new) // (new // old))[None], None
    return _nearest(old, new, *args)


def _positions(old: int, new: int, factor: float | None, align_corners: bool, real: Any) -> Any:
    step = _step(old, new, factor, align_corners, real)
    i = np.arange(new, dtype=real)
    return i * step if align_corners else (i + real(0.5)) * step - real(0.5)


def _linear(old: int, new: int, factor: float | None, align_corners: bool, real: Any) -> Any:
    at = np.maximum(_positions(old, new, factor, align_corners, real), 0)
    low = np.minimum(at.astype(np.int64), old - 1)
    part = np.clip(at - low.astype(real), 0, 1)
    return np.stack([low, np.minimum(low + 1, old - 1)]), np.stack([1 - part, part])


def _cubic_weight(distance: Any, a: float = -0.75) -> Any:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _cubic(old: int, new: int, factor: float | None, align_corners: bool, real: Any) -> Any:
    at = _positions(old, new, factor, align_corners, real)
    low = np.floor(at)
    reach = np.arange(-1, 3)[:, None]
    taps = np.clip(low.astype(np.int64) + reach, 0, old - 1)
    return taps, _cubic_weight(at - low - reach).astype(real)


def _antialiased(
    old: int, new: int, factor: float | None, mode: str, align_corners: bool
) -> tuple[Any, Any]:
    """Each new element is a weighted mean of the old ones that it covers, at least as many as
    without antialias.
    """
    step = float(_step(old, new, factor, align_corners, np.float64))
    shrink = max(step, 1.0)
    half = (1.0 if mode == "bilinear" else 2.0) * shrink
    centre = (np.arange(new) + 0.5) * step
    begin = np.maximum((centre - half + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + half + 0.5).astype(np.int64), old)
    reach = np.arange(max(int((end - begin).max()), 1))[:, None]
    distance = (begin + reach - centre + 0.5) / shrink
    if mode == "bilinear":
        weights = np.maximum(1 - np.abs(distance), 0)
    else:
        weights = _cubic_weight(distance, -0.5)
    weights = np.where(begin + reach < end, weights, 0)
    return np.minimum(begin + reach, old - 1), weights / weights.sum(0)


_TAPS: dict[str, Callable[..., Any]] = {
    "nearest": _nearest,
    "nearest-exact": _nearest_exact,
    "linear": _linear,
    "bilinear": _linear,
    "trilinear": _linear,
    "bicubic": _cubic,
}


# -- channels and space ----------------------------------------------------------------------------


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., C * r * r, H, W) becomes (..., C, H * r, W * r), r being ``upscale_factor``."""
    need_tensor("pixel_shuffle", input)
    r = upscale_factor
    _check_pixels("pixel_shuffle", "upscale_factor", input, r)
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    c, n = channels // (r * r), len(lead)
    x = input.reshape(*lead, c, r, r, height, width)
    x = x.permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*lead, c, height * r, width * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) becomes (..., C * r * r, H, W), r being ``downscale_factor``."""
    need_tensor("pixel_unshuffle", input)
    r = downscale_factor
    _check_pixels("pixel_unshuffle", "downscale_factor", input, r)
    *lead, channels, height, width = input.shape
    for name, dim, size in (("height", -2, height), ("width", -1, width)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                f"input.size({dim})={size} is not divisible by {r}"
            )
    n = len(lead)
    x = input.reshape(*lead, channels, height // r, r, width // r, r)
    x = x.permute(*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return x.reshape(*lead, channels * r * r, height // r, width // r)


def _check_pixels(name: str, argument: str, input: Tensor, factor: int) -> None:
    if input.dim() < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with "
            f"{input.dim()} dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {argument}, but got {factor}")


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleaves the channels of ``groups`` equal groups; the input is (N, C, ...)."""
    need_tensor("channel_shuffle", input)
    if input.dim() < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    n, channels, *rest = input.shape
    if groups <= 0 or channels % groups:
        raise RuntimeError(
            "Number of groups to divide channels in must be positive, and number of channels must "
            f"be divisible by groups. Got {channels} channels and {groups} groups."
        )
    return (
        input.reshape(n, groups, channels // groups, *rest)
        .transpose(1, 2)
        .reshape(n, channels, *rest)
    )


# -- patches ---------------------------------------------------------------------------------------


def unfold(
    input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Tensor:
    """Windows as columns: (N, C, H, W) becomes (N, C * elements of a window, number of windows); N
    may be missing.

    Args:
        input: (N, C, H, W) or (C, H, W).
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        dilation: Distance of the elements of a window.
        padding: Zeros around the image.
        stride: Distance of windows.
    """
    need_tensor("unfold", input)
    patches = _patch_sizes("unfold", kernel_size, dilation, padding, stride)
    if input.dim() < 3:
        raise IndexError(f"unfold: expected an image (C, H, W), but got shape {list(input.shape)}")
    if input.dim() not in (3, 4):
        raise RuntimeError(
            f"Expected 3D or 4D (batch mode) tensor for input, but got: {list(input.shape)}"
        )
    _need_elements("unfold", input, 3)
    return fold_ops.unfold(input, *patches)


def _need_elements(name: str, input: Tensor, ndim: int) -> None:
    """Nothing but the batch may be empty, and integers are not computed with."""
    if 0 in input.shape[input.dim() - ndim :]:
        raise RuntimeError(
            f"{name}: Expected an input with possibly 0 batch size and other non-zero dimensions, "
            f"but got: {list(input.shape)}"
        )
    if not (input.is_floating_point() or input.is_complex() or input.dtype == as_dtype("bool")):
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}')


def fold(
    input: Tensor,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Tensor:
    """Columns as windows, added up where they overlap: (N, C * elements of a window, number of
    windows) becomes (N, C, *output_size).

    Args:
        input: (N, C * elements of a window, number of windows) or without N.
        output_size: H and W of the result.
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        dilation: Distance of the elements of a window.
        padding: Zeros around the image, which are cut off.
        stride: Distance of windows.
    """
    need_tensor("fold", input)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(input.shape)}"
        )
    _need_elements("fold", input, 2)
    sizes = pool_sizes("fold", "output_size", output_size, 2)
    return fold_ops.fold(
        input, sizes, *_patch_sizes("fold", kernel_size, dilation, padding, stride)
    )


def _patch_sizes(name: str, kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[Sizes]:
    found = []
    for what, value, least in (
        ("kernel_size", kernel, 1),
        ("dilation", dilation, 1),
        ("padding", padding, 0),
        ("stride", stride, 1),
    ):
        sizes = pool_sizes(name, what, value, 2)
        if isinstance(value, (tuple, list)) and len(value) != 2:
            raise RuntimeError(
                f"{name}: It is expected {what} equals to 2, but got size {len(value)}"
            )
        if min(sizes) < least:
            raise RuntimeError(
                f"{name}: {what} should be {'greater than zero' if least else 'not negative'}, "
                f"but got {value}"
            )
        found.append(sizes)
    return found
