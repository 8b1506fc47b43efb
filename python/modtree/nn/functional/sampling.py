# SPDX-License-Identifier: BSD-3-Clause
"""Images read at places that are computed: spatial transformers."""

from __future__ import annotations

from modtree.numpy.argument_types import Sizes
from modtree.numpy.ops import grid_sample as grid_sample_ops
from modtree.numpy.ops.functions import stack
from modtree.numpy.tensor.ranges import linspace
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def affine_grid(theta: Tensor, size: Sizes, align_corners: bool | None = None) -> Tensor:
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
    if not theta.is_floating_point():
        raise ValueError(
            f"affine_grid: Expected theta to have floating point type, but got {theta.dtype}"
        )
    if len(size) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}."
        )
    if any(n <= 0 for n in size):
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    spatial = [int(n) for n in size[2:]]
    count = len(spatial)
    if count not in (2, 3) or tuple(theta.shape) != (int(size[0]), count, count + 1):
        raise ValueError(
            f"Expected a batch of affine matrices of shape {int(size[0])}x{count}x{count + 1} for "
            f"size {list(size)}. Got {list(theta.shape)}."
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
            f"'reflection', but got: '{padding_mode}'"
        )
    if not input.ndim or not grid.ndim:
        raise IndexError("grid_sample: expected an image and a grid, but got a scalar")
    count = input.ndim - 2
    if count not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != count:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and a grid with as many dimensions and size "
            f"{count} in the last one, but got input with sizes {list(input.shape)} and grid with "
            f"sizes {list(grid.shape)}"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {list(input.shape)}"
        )
    if grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.dtype != input.dtype and input.numel() and grid.numel():
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype} and grid has {grid.dtype}"
        )
    if mode == "bicubic" and count == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    return grid_sample_ops.grid_sample(input, grid, mode, padding_mode, bool(align_corners))
