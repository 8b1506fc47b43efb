# SPDX-License-Identifier: BSD-3-Clause
"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..creation import empty
from ..module import Module
from ..parameter import Parameter
from ..tensor import Tensor
from . import functional as F
from . import init

__all__ = ["LayerNorm"]


class LayerNorm(Module):
    """Normalizes over the last axes to mean 0 and variance 1, then scales and shifts.

    Args:
        normalized_shape: Sizes of the axes to normalize over; an int means the last axis.
        eps: Added to the variance.
        elementwise_affine: False leaves ``weight`` and ``bias`` out (both None).
        bias: False leaves ``bias`` out.
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters: ``weight`` (ones) and ``bias`` (zeros), both of shape ``normalized_shape``.
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
        self.normalized_shape = tuple(sizes)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            value = empty(self.normalized_shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if value is None else Parameter(value))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to ones and zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )
