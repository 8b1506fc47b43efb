# SPDX-License-Identifier: BSD-3-Clause
"""The graph: its nodes, and where the gradient of a tensor goes."""

from __future__ import annotations

from typing import Any, NamedTuple

from modtree import _C
from modtree._C import Node

__all__ = ["GradientEdge", "Node", "get_gradient_edge", "increment_version"]


class GradientEdge(NamedTuple):
    """An output of a node: where a gradient goes."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """Where the gradient of a tensor goes: its node, or the one that adds to its ``grad``."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(*_C.gradient_edge(tensor))


def increment_version(tensor: Any) -> None:
    """Counts a change in place that the library cannot see, made through an array for instance."""
    for one in (tensor,) if isinstance(tensor, _C.TensorBase) else tensor:
        _C.bump_version(one)
