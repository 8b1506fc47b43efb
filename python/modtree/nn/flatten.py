# SPDX-License-Identifier: BSD-3-Clause
"""Modules that change the shape."""

from __future__ import annotations

from typing import Any

from modtree.core.module import Module
from modtree.numpy.ops.shape import flatten, unflatten
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Makes one axis of the axes ``start_dim`` to ``end_dim``; by default all but the first.

    Shape:
        - input: (N, ...).
        - output: (N, product of the other sizes), with the default axes.
    """

    start_dim: int
    end_dim: int

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Makes the axes ``unflattened_size`` (one may be -1) of the axis ``dim``.

    Shape:
        - input: (..., n, ...), n being the size of ``dim``.
        - output: (..., *unflattened_size, ...).
    """

    dim: int
    unflattened_size: Any

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"invalid argument type for dim parameter: expected int, got {dim!r}")
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found type "
                f"{type(unflattened_size).__name__}"
            )
        for i, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    f"unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {i}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
