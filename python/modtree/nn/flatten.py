# SPDX-License-Identifier: BSD-3-Clause
"""Modules that change the shape."""

from __future__ import annotations

from ..module import Module
from ..tensor import Tensor

__all__ = ["Flatten"]


class Flatten(Module):
    """Makes one axis of the axes ``start_dim`` to ``end_dim``; by default all but the first."""

    start_dim: int
    end_dim: int

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
