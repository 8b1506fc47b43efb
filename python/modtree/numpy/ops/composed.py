# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of derivatives, for operations that kernels carry out: the same function made of
other operations is derived in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from modtree._C import TensorBase
from modtree.numpy.tensor.engine import grad


def _alias(x: Any) -> Any:
    return x.view_as(x)


def gradients_of(
    function: Callable[..., Any], inputs: Sequence[Any], needs: Sequence[bool], g: Any
) -> tuple[Any, ...]:
    """The gradients of ``function(*inputs)`` by its inputs, themselves on the graph.

    Args:
        function: Made of operations on tensors.
        inputs: Tensors.
        needs: Which gradients are wanted.
        g: The gradient of the result.
    """
    # Aliases, so that one tensor in two places has two gradients.
    own = [_alias(x) if isinstance(x, TensorBase) else x for x in inputs]
    wanted = [
        need and isinstance(x, TensorBase) and x.requires_grad
        for x, need in zip(own, needs, strict=False)
    ]
    chosen = [x for x, want in zip(own, wanted, strict=False) if want]
    if not chosen:
        return (None,) * len(own)
    found = iter(grad(function(*own), chosen, g, create_graph=True, allow_unused=True))
    return tuple(next(found) if want else None for want in wanted)
