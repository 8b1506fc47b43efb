# SPDX-License-Identifier: BSD-3-Clause
"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree import _C
from modtree.optim._arrays import (
    ArrayOptimizer,
    array_of,
    fits_kernel,
    takes_options,
    zeros_like,
)

__all__ = ["SGD"]


class SGD(ArrayOptimizer):
    """Gradient descent, with momentum if asked for (Sutskever et al., 2013).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        momentum: How much of the last update stays in the next.
        dampening: How much of a gradient is kept out of the momentum.
        weight_decay: Factor of the L2 penalty.
        nesterov: Look ahead along the momentum; needs one, and no dampening.
        maximize: Go up instead of down.
        foreach: Kept for torch's state dicts; changes nothing.
        differentiable: False only: steps are not recorded.
        fused: Kept for torch's state dicts; changes nothing.

    Raises:
        ValueError: An option is out of its range.
    """

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None: ...

    def _set_options(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super()._set_options(params, options)

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        if group["momentum"]:
            # None: the first gradient becomes the momentum.
            state["momentum_buffer"] = zeros_like(p) if p.is_meta else None

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, momentum = float(group["lr"]), float(group["momentum"])
        decay, fresh = float(group["weight_decay"]), 1 - float(group["dampening"])
        nesterov, maximize = group["nesterov"], group["maximize"]
        settings: dict[str, Any] = {
            "lr": lr,
            "momentum": momentum,
            "dampening": float(group["dampening"]),
            "weight_decay": decay,
            "nesterov": bool(nesterov),
            "maximize": bool(maximize),
        }
        for a, g, state in self._active(group):
            buffer: Any = array_of(state, "momentum_buffer") if momentum else None
            first = buffer is None and momentum
            if fits_kernel(a, buffer):
                if first:
                    buffer = np.empty_like(a)
                    state["momentum_buffer"] = _C.own_array(buffer)
                _C.kernels.sgd_step(a, g, buffer, first=bool(first), **settings)
                continue
            g = self._gradient(a, g, decay, maximize)
            update = self._scratch(a, 1)
            if momentum:
                if first:
                    buffer = np.array(g)
                    state["momentum_buffer"] = _C.own_array(buffer)
                else:
                    buffer *= momentum
                    buffer += g if fresh == 1 else np.multiply(g, fresh, out=update)
                if nesterov:
                    np.multiply(buffer, momentum, out=update)
                    update += g
                    update *= lr
                else:
                    np.multiply(buffer, lr, out=update)
            else:
                np.multiply(g, lr, out=update)
            a -= update
