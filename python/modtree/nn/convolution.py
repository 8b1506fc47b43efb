# SPDX-License-Identifier: BSD-3-Clause
"""Convolution layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from modtree._C import as_tuple
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn import init
from modtree.nn.functional._common import for_axes, tuple_of
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.parameter import OptionalParameter, Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Ints = int | tuple[int, ...]

_PADDING_NAMES = ("valid", "same")
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _each(value: Ints, n: int) -> tuple[int, ...]:
    """A number for each of ``n`` axes, or with 0 the tuple itself."""
    return tuple_of(value, n) if n else as_tuple(value)  # type: ignore[arg-type]


def _check_arguments(
    in_channels: int,
    out_channels: int,
    stride: tuple[int, ...],
    padding: str | Ints,
    groups: int,
    padding_mode: str,
) -> None:
    """ValueError for what no convolution can be made of."""
    if groups <= 0:
        raise ValueError(f"groups must be a positive integer, got {groups}")
    if in_channels % groups:
        raise ValueError(f"in_channels must be divisible by groups, got {in_channels} and {groups}")
    if out_channels % groups:
        raise ValueError(
            f"out_channels must be divisible by groups, got {out_channels} and {groups}"
        )
    if isinstance(padding, str):
        if padding not in _PADDING_NAMES:
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of {', '.join(_PADDING_NAMES)}"
            )
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(
            f"padding_mode must be one of {', '.join(_PADDING_MODES)}, but got "
            f"padding_mode='{padding_mode}'"
        )


def _padding_for_pad(
    padding: str | tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """The padding as :func:`modtree.nn.functional.pad` takes it: last axis first, before and
    after.
    """
    if not isinstance(padding, str):
        return tuple(p for p in reversed(padding) for _ in range(2))
    numbers = [0, 0] * len(kernel)
    if padding == "same":
        for i, (d, k) in enumerate(zip(reversed(dilation), reversed(kernel), strict=False)):
            total = d * (k - 1)
            numbers[2 * i : 2 * i + 2] = [total // 2, total - total // 2]
    return numbers


class _ConvNd(Module):
    """A convolution over ``_n`` axes, or its transpose: arguments, parameters, text. A class that
    does not say how many axes it has gives tuples.
    """

    _n: ClassVar[int] = 0

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    padding_mode: str
    weight: Tensor
    bias: OptionalParameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints,
        padding: str | Ints,
        dilation: Ints,
        transposed: bool,
        output_padding: Ints,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _each(kernel_size, self._n)
        self.stride = _each(stride, self._n)
        self.padding = padding if isinstance(padding, str) else _each(padding, self._n)
        self.dilation = _each(dilation, self._n)
        self.transposed = transposed
        self.output_padding = _each(output_padding, self._n)
        self.groups = groups
        self.padding_mode = padding_mode
        _check_arguments(in_channels, out_channels, self.stride, self.padding, groups, padding_mode)
        self._reversed_padding_repeated_twice = _padding_for_pad(
            self.padding, self.kernel_size, self.dilation
        )
        first, second = in_channels, out_channels
        if not transposed:
            first, second = second, first
        shape = (first, second // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters anew, uniform in plus or minus ``1 / sqrt(fan in)``: the weight
        first, then the bias.
        """
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * math.prod(self.weight.shape[2:])
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        n = len(self.kernel_size)
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]  # Module's is installed by name
        # Modules pickled before there were padding modes.
        if "padding_mode" not in self.__dict__:
            self.padding_mode = "zeros"


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: str | Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        conv = getattr(F, f"conv{self._n}d")
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * self._n
        return conv(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


_CONV = """A convolution over the {last} of (N, C, {sizes}) or (C, {sizes}).

    Args:
        in_channels: C of the input.
        out_channels: C of the result.
        kernel_size: Extent of a window; like the next ones a number, or one for each axis.
        stride: Distance of windows.
        padding: Elements around the input; ``"valid"`` means none, ``"same"`` as many as keep its
            size (with stride 1).
        dilation: Distance of the elements of a window.
        groups: The channels are split into so many groups that do not see each other.
        bias: False leaves the bias out.
        padding_mode: What is put around the input: ``"zeros"``, ``"reflect"``, ``"replicate"`` or
            ``"circular"``.
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters: ``weight`` (out_channels, in_channels / groups, *kernel_size) and ``bias``
    (out_channels), both uniform in plus or minus ``1 / sqrt(in_channels / groups * elements of a
    window)``.

    Shape:
        - input: (N, in_channels, {sizes}) or (in_channels, {sizes}).
        - output: (N, out_channels, {results}) or without N, ``{first}' = ({first} + 2 * padding -
          dilation * (kernel_size - 1) - 1) // stride + 1``{others}.
    """


class Conv1d(_Conv):
    __doc__ = for_axes(1, _CONV)
    _n = 1


class Conv2d(_Conv):
    __doc__ = for_axes(2, _CONV)
    _n = 2


class Conv3d(_Conv):
    __doc__ = for_axes(3, _CONV)
    _n = 3


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        transposed: bool,
        output_padding: Ints,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, got '
                f"{padding_mode!r}"
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(
        self,
        input: Tensor,
        output_size: Sequence[int] | None,
        stride: Sequence[int],
        padding: Sequence[int],
        kernel_size: Sequence[int],
        num_spatial_dims: int,
        dilation: Sequence[int] | None = None,
    ) -> tuple[int, ...]:
        """The output padding that leads to the wanted size."""
        if output_size is None:
            return self.output_padding
        n = num_spatial_dims
        wanted = list(output_size)
        extra = 2 if input.ndim == n + 2 else 1
        if len(wanted) == n + extra:
            wanted = wanted[extra:]
        if len(wanted) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.ndim}D input, output_size must have {n} or "
                f"{n + extra} elements (got {len(wanted)})"
            )
        spatial = tuple(input.shape[extra:])
        steps = (1,) * n if dilation is None else dilation
        numbers = zip(spatial, stride, padding, steps, kernel_size, strict=True)
        least = [(a - 1) * s - 2 * p + d * (k - 1) + 1 for a, s, p, d, k in numbers]
        most = [a + s - 1 for a, s in zip(least, stride, strict=True)]
        if any(not a <= w <= b for a, w, b in zip(least, wanted, most, strict=True)):
            raise ValueError(
                f"requested an output size of {as_tuple(wanted)}, but valid sizes range from "
                f"{least} to {most} (for an input of {spatial})"
            )
        return tuple(w - a for w, a in zip(wanted, least, strict=True))


class _ConvTranspose(_ConvTransposeNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            True,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        padding: Any = self.padding
        output_padding = self._output_padding(
            input, output_size, self.stride, padding, self.kernel_size, self._n, self.dilation
        )
        conv_transpose = getattr(F, f"conv_transpose{self._n}d")
        return conv_transpose(
            input,
            self.weight,
            self.bias,
            self.stride,
            padding,
            output_padding,
            self.groups,
            self.dilation,
        )


_CONV_TRANSPOSE = """The transpose of :class:`Conv{n}d`: every element of the input adds a multiple
    of the kernel to the result (Zeiler et al., 2010).

    Args:
        in_channels: C of the input.
        out_channels: C of the result.
        kernel_size: Extent of the kernel; like the next ones a number, or one for each axis.
        stride: Distance of the places where neighbours add.
        padding: How many elements are cut off on each side.
        output_padding: How many elements are added at the end.
        groups: The channels are split into so many groups that do not see each other.
        bias: False leaves the bias out.
        dilation: Distance of the elements of the kernel.
        padding_mode: ``"zeros"`` only.
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters: ``weight`` (in_channels, out_channels / groups, *kernel_size) and ``bias``
    (out_channels).

    Called with ``output_size=`` it chooses the output padding for that size.

    Shape:
        - input: (N, in_channels, {sizes}) or (in_channels, {sizes}).
        - output: (N, out_channels, {results}) or without N, ``{first}' = ({first} - 1) * stride -
          2 * padding + dilation * (kernel_size - 1) + output_padding + 1``{others}.
    """


class ConvTranspose1d(_ConvTranspose):
    __doc__ = for_axes(1, _CONV_TRANSPOSE)
    _n = 1


class ConvTranspose2d(_ConvTranspose):
    __doc__ = for_axes(2, _CONV_TRANSPOSE)
    _n = 2


class ConvTranspose3d(_ConvTranspose):
    __doc__ = for_axes(3, _CONV_TRANSPOSE)
    _n = 3
