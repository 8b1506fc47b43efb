# SPDX-License-Identifier: BSD-3-Clause
"""Activations along an axis as modules."""

from __future__ import annotations

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["GLU", "LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class _Along(Module):
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_Along):
    """``exp(x) / sum(exp(x))`` along ``dim``.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=4)


class Softmin(_Along):
    """Softmax of ``-x`` along ``dim``.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=4)


class LogSoftmax(_Along):
    """``log(softmax(x))`` along ``dim``.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=4)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    Shape:
        - input and output: (N, C, H, W) or (C, H, W), the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)


class GLU(_Along):
    """``a * sigmoid(b)``, where a and b are the halves of the input along ``dim`` (Dauphin et al.,
    2016).

    Shape:
        - input: any shape, with an even size n along ``dim``.
        - output: the same, with n / 2 there.
    """

    dim: int

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim)

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)
