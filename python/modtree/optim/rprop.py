# SPDX-License-Identifier: BSD-3-Clause
"""Rprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree.optim._arrays import (
    ArrayOptimizer,
    count,
    counter,
    real_parts,
    takes_options,
    zeros_like,
)

__all__ = ["Rprop"]


class Rprop(ArrayOptimizer):
    """Steps by the signs of the gradients alone: each parameter's step grows while its sign stays
    and shrinks when it changes (Riedmiller and Braun, 1993).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The size of the first step.
        etas: The factors of steps: below 1 where the sign has changed, above 1 where it stays.
        step_sizes: The smallest and the largest step.
        capturable: Kept for torch's state dicts; changes nothing.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        differentiable: False only: steps are not recorded.

    Raises:
        ValueError: An option is out of its range.
    """

    _order = ("lr", "etas", "step_sizes", "foreach", "maximize", "differentiable", "capturable")

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        lr = float(group["lr"])
        state["step"] = counter()
        state["prev"] = zeros_like(p)
        state["step_size"] = zeros_like(p)
        if not p.is_meta:
            state["step_size"]._array[...] = complex(lr, lr) if p.is_complex() else lr

    def _step_group(self, group: dict[str, Any]) -> None:
        smaller, larger = map(float, group["etas"])
        least, most = map(float, group["step_sizes"])
        maximize = group["maximize"]
        for a, g, state in self._active(group):
            count(state)
            g = self._gradient(a, g, 0.0, maximize)
            arrays = (a, g, state["prev"]._array, state["step_size"]._array)
            for param, grad, prev, size in real_parts(*arrays):
                agreement = grad * prev
                turned = agreement < 0
                size *= np.where(agreement > 0, larger, np.where(turned, smaller, 1.0))
                np.clip(size, least, most, out=size)
                # A place that has gone too far waits, and is not too far next time.
                np.copyto(prev, grad)
                prev[turned] = 0
                # Not np.sign, of which NaN is NaN.
                param -= size * (prev > 0)
                param += size * (prev < 0)
