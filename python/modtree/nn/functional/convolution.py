# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions and transposed convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from modtree.nn.functional._common import conv_sizes, for_axes, named, need_tensor
from modtree.numpy.argument_types import Ints
from modtree.numpy.ops import conv as conv_ops
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]

if TYPE_CHECKING:

    class _Conv(Protocol):
        def __call__(
            self,
            input: Tensor,
            weight: Tensor,
            bias: Tensor | None = None,
            stride: Ints = 1,
            padding: str | Ints = 0,
            dilation: Ints = 1,
            groups: int = 1,
        ) -> Tensor: ...

    class _ConvTranspose(Protocol):
        def __call__(
            self,
            input: Tensor,
            weight: Tensor,
            bias: Tensor | None = None,
            stride: Ints = 1,
            padding: Ints = 0,
            output_padding: Ints = 0,
            groups: int = 1,
            dilation: Ints = 1,
        ) -> Tensor: ...


def _batch_of(name: str, n: int, input: Tensor, weight: Tensor) -> tuple[Tensor, bool]:
    """The input with a batch axis, and whether it had one."""
    need_tensor(name, input)
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input "
            f"of size: {list(input.shape)}"
        )
    need_tensor(name, weight)
    batched = input.dim() == n + 2
    return (input if batched else input.unsqueeze(0)), batched


def _named_padding(
    x: Tensor, weight: Tensor, padding: str, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    if padding == "valid":
        return x, (0,) * len(stride)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}', should be 'valid' or 'same'")
    if max(stride) > 1:
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    if weight.ndim != len(dilation) + 2:
        raise RuntimeError(
            f"expected weight of {len(dilation) + 2} dimensions, got shape {list(weight.shape)}"
        )
    totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(total % 2 for total in totals):
        # The odd element goes to the end.
        pads = ((0, 0), (0, 0), *((0, total % 2) for total in totals))
        x = ops["pad"](x, pads, "constant", 0)
    return x, tuple(total // 2 for total in totals)


_CONV = """Convolution over the {last}.

    Args:
        input: (N, C, {sizes}), or without N.
        weight: (O, C / groups, *kernel).
        bias: (O).
        stride: Distance of windows.
        padding: Zeros around the input, or ``"valid"`` for none, or
            ``"same"`` for as many as keep its size.
        dilation: Distance of the elements of a window.
        groups: The channels are split into so many groups that do not see each other.

    Returns (N, O, *number of windows). RuntimeError for sizes or dtypes that do not fit.
    """
_CONV_TRANSPOSE = """The transpose of ``conv{n}d``.

    Every element of the input adds a multiple of the kernel to the result.

    Args:
        input: (N, C, {sizes}), or without N.
        weight: (C, O / groups, *kernel).
        bias: (O).
        stride: Distance of the places where neighbours add.
        padding: How many elements are cut off on each side.
        output_padding: How many elements are added at the end.
        groups: The channels are split into so many groups that do not see each other.
        dilation: Distance of the elements of a window.

    Returns (N, O, *sizes), each of them
    ``(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 + output_padding``.
    """


def _make_conv(n: int) -> _Conv:
    name = f"conv{n}d"

    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Ints = 1,
        padding: str | Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Tensor:
        x, batched = _batch_of(name, n, input, weight)
        strides = conv_sizes(name, "stride", stride, n)
        dilations = conv_sizes(name, "dilation", dilation, n)
        if isinstance(padding, str):
            x, paddings = _named_padding(x, weight, padding, strides, dilations)
        else:
            paddings = conv_sizes(name, "padding", padding, n)
        y = conv_ops.convolution(x, weight, bias, strides, paddings, dilations, groups)
        return y if batched else y.squeeze(0)

    return named(conv, name, for_axes(n, _CONV))


def _make_conv_transpose(n: int) -> _ConvTranspose:
    name = f"conv_transpose{n}d"

    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        dilation: Ints = 1,
    ) -> Tensor:
        x, batched = _batch_of(name, n, input, weight)
        y = conv_ops.conv_transpose(
            x,
            weight,
            bias,
            conv_sizes(name, "stride", stride, n),
            conv_sizes(name, "padding", padding, n),
            conv_sizes(name, "output_padding", output_padding, n),
            conv_sizes(name, "dilation", dilation, n),
            groups,
        )
        return y if batched else y.squeeze(0)

    return named(conv_transpose, name, for_axes(n, _CONV_TRANSPOSE))


conv1d, conv2d, conv3d = map(_make_conv, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_make_conv_transpose, (1, 2, 3))
