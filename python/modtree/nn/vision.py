# SPDX-License-Identifier: BSD-3-Clause
"""Resizing, moving channels into space and back, patches as columns and back."""

from __future__ import annotations

from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "ChannelShuffle",
    "Fold",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]


class Upsample(Module):
    """Resizes the axes after the first two; see :func:`modtree.nn.functional.interpolate` for the
    arguments.

    Args:
        size: The new sizes, one number or one for each axis.
        scale_factor: Factors instead of sizes.
        mode: ``"nearest"``, ``"linear"`` (3-D input), ``"bilinear"``, ``"bicubic"`` (4-D) or
            ``"trilinear"`` (5-D).
        align_corners: The outer elements stay where they are; for the linear and cubic modes.
        recompute_scale_factor: Compute the factors anew from the (rounded) sizes.

    Shape:
        - input: (N, C, L), (N, C, H, W) or (N, C, D, H, W).
        - output: (N, C, *sizes), the sizes times ``scale_factor`` rounded down, or ``size``.
    """

    name: str
    mode: str
    align_corners: bool | None
    recompute_scale_factor: bool | None

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor: Any
        if isinstance(scale_factor, tuple):
            self.scale_factor = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """:class:`Upsample` with ``mode="nearest"``.

    Shape:
        - input: (N, C, H, W).
        - output: (N, C, H', W').
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """:class:`Upsample` with ``mode="bilinear", align_corners=True``.

    Shape:
        - input: (N, C, H, W).
        - output: (N, C, H', W').
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """(..., C * r * r, H, W) becomes (..., C, H * r, W * r), r being ``upscale_factor`` (Shi et
    al., 2016).

    Shape:
        - input: (..., C * r * r, H, W).
        - output: (..., C, H * r, W * r).
    """

    upscale_factor: int

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., C, H * r, W * r) becomes (..., C * r * r, H, W), r being ``downscale_factor``.

    Shape:
        - input: (..., C, H * r, W * r).
        - output: (..., C * r * r, H, W).
    """

    downscale_factor: int

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleaves the channels of ``groups`` equal groups (Zhang et al., 2017); the input is (N, C,
    ...).

    Shape:
        - input and output: (N, C, ...), the same.
    """

    groups: int

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Unfold(Module):
    """Windows as columns: (N, C, H, W) becomes (N, C * elements of a window, number of windows).

    Args:
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        dilation: Distance of the elements of a window.
        padding: Zeros around the image.
        stride: Distance of windows.

    Shape:
        - input: (N, C, H, W) or (C, H, W).
        - output: (N, C * elements of a window, number of windows) or without N.
    """

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Columns as windows, added up where they overlap: the transpose of :class:`Unfold`; the result
    has ``output_size``.

    Args:
        output_size: H and W of the result.
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        dilation: Distance of the elements of a window.
        padding: Zeros around the image.
        stride: Distance of windows.

    Shape:
        - input: (N, C * elements of a window, number of windows) or without N.
        - output: (N, C, *output_size) or without N.
    """

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )
