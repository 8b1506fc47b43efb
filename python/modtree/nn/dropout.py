# SPDX-License-Identifier: BSD-3-Clause
"""Dropout."""

from __future__ import annotations

from ..module import Module
from ..tensor import Tensor
from . import functional as F

__all__ = ["Dropout"]


class Dropout(Module):
    """While training, sets values to 0 with probability ``p`` and scales the others by ``1 / (1 - p)``."""

    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
