# SPDX-License-Identifier: BSD-3-Clause
"""Layers that take the number of their inputs from their first input."""

from __future__ import annotations

from typing import Any

from modtree.core.families import is_lazy
from modtree.core.lazy import LazyModuleMixin
from modtree.nn import batchnorm, convolution, linear
from modtree.nn.batchnorm import _BatchNorm, _InstanceNorm, _NormBase
from modtree.nn.convolution import Ints, _ConvNd
from modtree.nn.functional._common import without_argument
from modtree.numpy.tensor.dtypes import long
from modtree.numpy.tensor.from_data import tensor
from modtree.numpy.tensor.tensor import Tensor
from modtree.numpy.tensor.uninitialized import UninitializedBuffer, UninitializedParameter

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyLinear(LazyModuleMixin, linear.Linear):
    """A :class:`Linear` whose ``in_features`` is the size of the last axis of its first input.

    Args:
        out_features: Size of the last axis of the output.
        bias: False leaves the bias out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Example:
        >>> layer = nn.LazyLinear(3)
        >>> layer.weight
        <UninitializedParameter>
        >>> layer(mt.ones(2, 5)).shape
        modtree.Size([2, 3])
        >>> layer
        Linear(in_features=5, out_features=3, bias=True)

    Shape:
        - input: (..., in_features).
        - output: (..., out_features).
    """

    cls_to_become = linear.Linear
    _inferred = ("in_features",)
    weight: Any
    bias: Any

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draws the parameters anew, once they have shapes."""
        if self.in_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def extra_repr(self) -> str:
        return _with_loaded(super().extra_repr(), self.in_features, self.weight, -1)

    def initialize_parameters(self, input: Tensor) -> None:
        features = input.shape[-1]
        if self.has_uninitialized_params():
            self.in_features = features
            self.weight.materialize((self.out_features, features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:  # the shapes are those of a state dict
            if features != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {features} is not equal to in_features "
                    f"from self.weight: {self.weight.shape[-1]}, which was loaded"
                )
            self.in_features = features


def _with_loaded(text: str, known: int, loaded: Any, place: int, times: int = 1) -> str:
    """The text of a layer with the size that a loaded tensor has where it says 0: the attribute is
    set by the first input.
    """
    if known or loaded is None or is_lazy(loaded):
        return text
    return text.replace("0", str(loaded.shape[place] * times), 1)


# -- convolutions ----------------------------------------------------------------------------------


class _LazyConvMixin(LazyModuleMixin, _ConvNd):
    _inferred = ("in_channels",)
    weight: Any
    bias: Any

    def _forget_shapes(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draws the parameters anew, once they have shapes."""
        if self.in_channels != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def extra_repr(self) -> str:
        place, times = (0, 1) if self.transposed else (1, self.groups)
        return _with_loaded(super().extra_repr(), self.in_channels, self.weight, place, times)

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():  # the shapes are those of a state dict
            channels = self.weight.shape[0 if self.transposed else 1]
            self.in_channels = channels * (1 if self.transposed else self.groups)
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError(
                f"in_channels must be divisible by groups, got an input of {self.in_channels} "
                f"channels and groups={self.groups}"
            )
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        alone = self._get_num_spatial_dims() + 1
        if input.ndim not in (alone, alone + 1):
            raise RuntimeError(
                f"Expected {alone}D (unbatched) or {alone + 1}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {tuple(input.shape)}"
            )
        return input.shape[input.ndim - alone]

    def _get_num_spatial_dims(self) -> int:
        return self._n


class _LazyConv(_LazyConvMixin):
    def __init__(
        self,
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
        lengths = kernel_size, stride, padding, dilation
        # The convolution that stands behind.
        super().__init__(0, 0, *lengths, groups, False, padding_mode)
        self._forget_shapes(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvMixin):
    def __init__(
        self,
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
            0,
            0,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            False,
            dilation,
            padding_mode,
        )
        self._forget_shapes(out_channels, bias, device, dtype)


_SHAPES = """

    Shape:
        - input and output: those of :class:`{name}`.
    """
_CONV = (
    """A :class:`{name}` whose ``in_channels`` is the number of channels of its first input.

    Args:
        out_channels: C of the result.
        kernel_size: Extent of the kernel; like the next ones a number, or one for each axis.
        stride: Distance of windows.
        padding: Elements around the input, or cut off on each side by a transpose.
        output_padding: How many elements a transpose adds at the end.
        dilation: Distance of the elements of a window.
        groups: The channels are split into so many groups that do not see each other.
        bias: False leaves the bias out.
        padding_mode: What is put around the input.
        device: Where the parameters are made.
        dtype: Their dtype."""
    + _SHAPES
)
_NORM = (
    """A :class:`{name}` whose ``num_features`` is the number of channels of its first input.

    Args:
        eps: Added to the variance.
        momentum: How far the running values move.
        affine: False leaves ``weight`` and ``bias`` out (both None).
        track_running_stats: False leaves the buffers out.
        device: Where parameters and buffers are made.
        dtype: Their dtype.
        bias: False leaves ``bias`` out."""
    + _SHAPES
)


class LazyConv1d(_LazyConv, convolution.Conv1d):
    __doc__ = without_argument(_CONV, "output_padding").format(name="Conv1d")
    cls_to_become = convolution.Conv1d


class LazyConv2d(_LazyConv, convolution.Conv2d):
    __doc__ = without_argument(_CONV, "output_padding").format(name="Conv2d")
    cls_to_become = convolution.Conv2d


class LazyConv3d(_LazyConv, convolution.Conv3d):
    __doc__ = without_argument(_CONV, "output_padding").format(name="Conv3d")
    cls_to_become = convolution.Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, convolution.ConvTranspose1d):
    __doc__ = _CONV.format(name="ConvTranspose1d")
    cls_to_become = convolution.ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, convolution.ConvTranspose2d):
    __doc__ = _CONV.format(name="ConvTranspose2d")
    cls_to_become = convolution.ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, convolution.ConvTranspose3d):
    __doc__ = _CONV.format(name="ConvTranspose3d")
    cls_to_become = convolution.ConvTranspose3d


# -- normalization ---------------------------------------------------------------------------------


class _LazyNormBase(LazyModuleMixin, _NormBase):
    _inferred = ("num_features",)
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device=device, dtype=dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=long, device=device)

    def reset_parameters(self) -> None:
        """Back to ones and zeros, once there are shapes; the running statistics too."""
        if self.num_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def extra_repr(self) -> str:
        loaded = self.weight if self.weight is not None else self.running_mean
        return _with_loaded(super().extra_repr(), self.num_features, loaded, 0)

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            loaded = self.weight if self.weight is not None else self.running_mean
            if loaded is not None:  # the shapes are those of a state dict
                self.num_features = loaded.shape[0]
            return
        self._check_input_dim(input)
        self.num_features = input.shape[self._channel_axis(input)]
        for parameter in (self.weight, self.bias, self.running_mean, self.running_var):
            if parameter is not None:
                parameter.materialize((self.num_features,))
        self.reset_parameters()

    def _channel_axis(self, input: Tensor) -> int:
        return 1


class _LazyInstanceNorm(_LazyNormBase, _InstanceNorm):
    def _channel_axis(self, input: Tensor) -> int:
        return input.ndim - self._ranks[0]


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    __doc__ = _NORM.format(name="BatchNorm1d")
    cls_to_become = batchnorm.BatchNorm1d
    _ranks = batchnorm.BatchNorm1d._ranks


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    __doc__ = _NORM.format(name="BatchNorm2d")
    cls_to_become = batchnorm.BatchNorm2d
    _ranks = batchnorm.BatchNorm2d._ranks


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    __doc__ = _NORM.format(name="BatchNorm3d")
    cls_to_become = batchnorm.BatchNorm3d
    _ranks = batchnorm.BatchNorm3d._ranks


class LazyInstanceNorm1d(_LazyInstanceNorm):
    __doc__ = _NORM.format(name="InstanceNorm1d")
    cls_to_become = batchnorm.InstanceNorm1d
    _ranks = batchnorm.InstanceNorm1d._ranks


class LazyInstanceNorm2d(_LazyInstanceNorm):
    __doc__ = _NORM.format(name="InstanceNorm2d")
    cls_to_become = batchnorm.InstanceNorm2d
    _ranks = batchnorm.InstanceNorm2d._ranks


class LazyInstanceNorm3d(_LazyInstanceNorm):
    __doc__ = _NORM.format(name="InstanceNorm3d")
    cls_to_become = batchnorm.InstanceNorm3d
    _ranks = batchnorm.InstanceNorm3d._ranks
