# SPDX-License-Identifier: BSD-3-Clause
"""Distances between vectors as modules."""

from __future__ import annotations

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """Cosine of the angle between vectors along ``dim``; norms count as at least ``eps``.

    Shape:
        - x1 and x2: any shapes that broadcast.
        - output: the shape they broadcast to without ``dim``.
    """

    dim: int
    eps: float

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of ``x1 - x2 + eps`` along the last axis.

    Args:
        p: The norm.
        eps: Added to the differences, so that the gradient is finite where they are 0.
        keepdim: Keep the last axis, with size 1.

    Shape:
        - x1 and x2: (..., D), broadcast.
        - output: (...), or (..., 1) with ``keepdim``.
    """

    norm: float
    eps: float
    keepdim: bool

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
