# SPDX-License-Identifier: BSD-3-Clause
"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree._C import as_tuple
from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn import init
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.parameter import OptionalParameter, Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _Affine(Module):
    """``weight`` and ``bias``, which scale and shift what was normalized."""

    weight: OptionalParameter
    bias: OptionalParameter

    def _set_affine(self, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        for name, wanted in (("weight", weight), ("bias", weight and bias)):
            value = empty(shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if value is None else Parameter(value))

    def reset_parameters(self) -> None:
        """Back to ones and zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(_Affine):
    """Normalizes over the last axes to mean 0 and variance 1, then scales and shifts (Ba et al.,
    2016).

    Args:
        normalized_shape: Sizes of the axes to normalize over; an int means the last axis.
        eps: Added to the variance.
        elementwise_affine: False leaves ``weight`` and ``bias`` out (both None).
        bias: False leaves ``bias`` out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters: ``weight`` (ones) and ``bias`` (zeros), both of shape ``normalized_shape``.

    Shape:
        - input and output: (..., *normalized_shape), the same.
    """

    normalized_shape: tuple[int, ...]
    eps: float
    elementwise_affine: bool

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = as_tuple(sizes)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._set_affine(self.normalized_shape, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class GroupNorm(_Affine):
    """Normalizes each group of channels of each sample to mean 0 and variance 1, then scales and
    shifts each channel (Wu and He, 2018).

    Args:
        num_groups: Number of groups.
        num_channels: C of the input (N, C, ...), a multiple of ``num_groups``.
        eps: Added to the variance.
        affine: False leaves ``weight`` and ``bias`` out (both None).
        device: Where the parameters are made.
        dtype: Their dtype.
        bias: False leaves ``bias`` out.

    Parameters: ``weight`` (ones) and ``bias`` (zeros), both of shape (num_channels).

    Shape:
        - input and output: (N, C, ...), the same.
    """

    num_groups: int
    num_channels: int
    eps: float
    affine: bool

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._set_affine(num_channels, affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root of the mean square over the last axes, then scales (Zhang and Sennrich,
    2019).

    Args:
        normalized_shape: Sizes of the axes; an int means the last axis.
        eps: Added to the mean square; None means the smallest step from 1 of the input's dtype.
        elementwise_affine: False leaves ``weight`` out (None).
        device: Where the parameter is made.
        dtype: Its dtype.

    Parameter: ``weight`` (ones), of shape ``normalized_shape``.

    Shape:
        - input and output: (..., *normalized_shape), the same.
    """

    normalized_shape: tuple[int, ...]
    eps: float | None
    elementwise_affine: bool
    weight: OptionalParameter

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = as_tuple(sizes)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class LocalResponseNorm(Module):
    """Divides by a power of the mean square over neighbouring channels (Krizhevsky et al., 2012);
    see :func:`modtree.nn.functional.local_response_norm`.

    Args:
        size: Number of neighbouring channels.
        alpha: Factor of the mean square.
        beta: The power.
        k: Added to the mean square times ``alpha``.

    Shape:
        - input and output: (N, C, ...), the same.
    """

    size: int
    alpha: float
    beta: float
    k: float

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
