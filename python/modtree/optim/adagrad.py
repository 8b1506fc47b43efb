# SPDX-License-Identifier: BSD-3-Clause
"""Adagrad and Adadelta: steps scaled by the squares of all gradients, or of the recent ones."""

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

__all__ = ["Adadelta", "Adagrad"]


class Adagrad(ArrayOptimizer):
    """Gradients divided by the root of the sum of all squares so far (Duchi et al., 2011).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        lr_decay: How fast it falls with the number of steps.
        weight_decay: Factor of the L2 penalty.
        initial_accumulator_value: What the sums start from.
        eps: Added to the root.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        differentiable: False only: steps are not recorded.
        fused: Kept for torch's state dicts; changes nothing.

    Raises:
        ValueError: An option is out of its range.
    """

    _order = ("lr", "lr_decay", "eps")

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None: ...

    def _set_options(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        super()._set_options(params, options)
        # The state is there from the start, so that it is in a state_dict before the first step.
        for group in self.param_groups:
            for p in group["params"]:
                self._start(p, self.state[p], group)

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        total = zeros_like(p)
        if not p.is_meta:
            value = self.defaults["initial_accumulator_value"]
            total._array[...] = complex(value, value) if p.is_complex() else value
        state["sum"] = total

    def share_memory(self) -> None:
        """Moves the sums into memory that processes forked later share."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps, decay = float(group["lr"]), float(group["eps"]), float(group["weight_decay"])
        lr_decay, maximize = float(group["lr_decay"]), group["maximize"]
        for a, g, state in self._active(group):
            rate = lr / (1 + (count(state) - 1) * lr_decay)
            g = self._gradient(a, g, decay, maximize)
            for part, grad, total in real_parts(a, g, state["sum"]._array):
                work = np.multiply(grad, grad, out=self._scratch(part, 1))
                total += work
                np.sqrt(total, out=work)
                work += eps
                np.divide(grad, work, out=work)
                work *= rate
                part -= work


class Adadelta(ArrayOptimizer):
    """Steps scaled by the recent gradients and the recent steps (Zeiler, 2012).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: A factor of the steps.
        rho: How much of the two means stays at each step.
        eps: Added to both means.
        weight_decay: Factor of the L2 penalty.
        foreach: Kept for torch's state dicts; changes nothing.
        capturable: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        differentiable: False only: steps are not recorded.

    Raises:
        ValueError: An option is out of its range.
    """

    _order = ("lr", "rho", "eps", "weight_decay", "maximize", "capturable")

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        state["square_avg"] = zeros_like(p)
        state["acc_delta"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps, decay = float(group["lr"]), float(group["eps"]), float(group["weight_decay"])
        rho, maximize = float(group["rho"]), group["maximize"]
        for a, g, state in self._active(group):
            count(state)
            g = self._gradient(a, g, decay, maximize)
            for part, grad, square, steps in real_parts(
                a, g, state["square_avg"]._array, state["acc_delta"]._array
            ):
                work, delta = self._scratch(part, 1), self._scratch(part, 2)
                np.multiply(grad, grad, out=work)
                work *= 1 - rho
                square *= rho
                square += work
                np.add(square, eps, out=work)
                np.sqrt(work, out=work)
                np.add(steps, eps, out=delta)
                np.sqrt(delta, out=delta)
                delta /= work
                delta *= grad
                np.multiply(delta, delta, out=work)
                work *= 1 - rho
                steps *= rho
                steps += work
                delta *= lr
                part -= delta
