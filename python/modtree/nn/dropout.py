# SPDX-License-Identifier: BSD-3-Clause
"""Dropout."""

from __future__ import annotations

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _DropoutNd(Module):
    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """While training, sets values to 0 with probability ``p`` and scales the others by ``1 / (1 -
    p)`` (Srivastava et al., 2014).

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


_CHANNELS = """While training, sets whole channels of {shape} to 0 with probability ``p``
    and scales the others (Tompson et al., 2014).

    Shape:
        - input and output: {shape}, the same.
    """


class Dropout1d(_DropoutNd):
    __doc__ = _CHANNELS.format(shape="(N, C, L) or (C, L)")

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    __doc__ = _CHANNELS.format(shape="(N, C, H, W) or (N, C, L)")

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    __doc__ = _CHANNELS.format(shape="(N, C, D, H, W) or (C, D, H, W)")

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout for networks of SELU: dropped values take SELU's lower limit, and mean 0 and variance
    1 stay (Klambauer et al., 2017).

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """:class:`AlphaDropout` of whole channels.

    Shape:
        - input and output: (N, C, ...), the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
