# SPDX-License-Identifier: BSD-3-Clause
"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree._C import kernels
from modtree.optim._arrays import (
    ArrayOptimizer,
    array_of,
    count,
    counter,
    fits_kernel,
    real_parts,
    takes_options,
    zeros_like,
)

__all__ = ["RMSprop"]


class RMSprop(ArrayOptimizer):
    """Gradients divided by the root of the running mean of their squares (Hinton's lectures, 2012).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        alpha: How much of the mean stays at each step.
        eps: Added to the root.
        weight_decay: Factor of the L2 penalty.
        momentum: How much of the last update stays in the next.
        centered: Divide by an estimate of the standard deviation instead (Graves, 2013).
        capturable: Kept for torch's state dicts; changes nothing.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        differentiable: False only: steps are not recorded.

    Raises:
        ValueError: An option is out of its range.
    """

    _order = ("lr", "momentum", "alpha", "eps", "centered", "weight_decay")

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        state["square_avg"] = zeros_like(p)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps, decay = float(group["lr"]), float(group["eps"]), float(group["weight_decay"])
        alpha, momentum = float(group["alpha"]), float(group["momentum"])
        centered, maximize = group["centered"], group["maximize"]
        settings: dict[str, Any] = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": decay,
            "momentum": momentum,
            "maximize": bool(maximize),
        }
        for a, g, state in self._active(group):
            count(state)
            square = state["square_avg"]._array
            mean = array_of(state, "grad_avg") if centered else None
            buffer = array_of(state, "momentum_buffer") if momentum > 0 else None
            if fits_kernel(a, square, mean, buffer):
                kernels.rmsprop_step(a, g, square, mean, buffer, **settings)
                continue
            g = self._gradient(a, g, decay, maximize)
            for part in real_parts(a, g, square, mean, buffer):
                work = self._scratch(part[0], 1)
                rmsprop_update(*(*part, work, lr, alpha, eps, momentum))


def rmsprop_update(
    a: Any,
    g: Any,
    square: Any,
    mean: Any,
    buffer: Any,
    work: Any,
    lr: float,
    alpha: float,
    eps: float,
    momentum: float,
) -> None:
    """The kernel's step for arrays that it does not take; ``mean`` is there if centered, ``buffer``
    if there is momentum.
    """
    np.multiply(g, g, out=work)
    work *= 1 - alpha
    square *= alpha
    square += work
    if mean is None:
        np.sqrt(square, out=work)
    else:
        np.subtract(g, mean, out=work)
        work *= 1 - alpha
        mean += work
        np.multiply(mean, mean, out=work)
        np.subtract(square, work, out=work)
        np.sqrt(work, out=work)
    work += eps
    np.divide(g, work, out=work)
    if buffer is None:
        work *= lr
    else:
        buffer *= momentum
        buffer += work
        np.multiply(buffer, lr, out=work)
    a -= work
