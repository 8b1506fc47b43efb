# SPDX-License-Identifier: BSD-3-Clause
"""Small models to be looked at, in each module system with leaves of its tensor library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def models(impl: Any) -> SimpleNamespace:
    """Classes of modules whose leaves are tensors of ``impl.lib``."""
    nn, lib = impl.nn, impl.lib

    class Scale(nn.Module):
        """One parameter, which multiplies."""

        def __init__(self, *shape: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(lib.ones(*shape))

        def forward(self, x: Any) -> Any:
            return x * self.weight

        def extra_repr(self) -> str:
            return f"shape={tuple(self.weight.shape)}"

    class Shift(nn.Module):
        """One parameter that adds, and a buffer that counts calls in training."""

        def __init__(self, size: int) -> None:
            super().__init__()
            self.bias = nn.Parameter(lib.zeros(size))
            self.register_buffer("calls", lib.zeros(1, dtype=lib.int64))

        def forward(self, x: Any) -> Any:
            if self.training:
                self.calls.add_(1)
            return x + self.bias

    class Block(nn.Module):
        """A scale and a shift."""

        def __init__(self, size: int) -> None:
            super().__init__()
            self.scale = Scale(size)
            self.shift = Shift(size)

        def forward(self, x: Any) -> Any:
            return self.shift(self.scale(x))

    class Stack(nn.Module):
        """Equal blocks in a list, and a last one that returns a tuple."""

        def __init__(self, size: int, depth: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Block(size) for _ in range(depth)])
            self.last = Scale(size)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return self.last(x), {"sum": x.sum(), "none": None}

    return SimpleNamespace(Scale=Scale, Shift=Shift, Block=Block, Stack=Stack)
