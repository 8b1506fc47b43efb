# SPDX-License-Identifier: BSD-3-Clause
"""Averaged SGD."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree.optim._arrays import ArrayOptimizer, count, counter, takes_options, zeros_like

__all__ = ["ASGD"]


class ASGD(ArrayOptimizer):
    """SGD that also keeps an average of the parameters, ``ax`` in the state (Polyak and Juditsky,
    1992).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate of the first step.
        lambd: How fast it falls, and the decay of the parameters.
        alpha: The power with which it falls.
        t0: The step at which averaging starts.
        weight_decay: Factor of the L2 penalty.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        differentiable: False only: steps are not recorded.
        capturable: Kept for torch's state dicts; changes nothing.

    Raises:
        ValueError: An option is out of its range.
    """

    _checks = {"alpha": None}  # noqa: RUF012

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        state["eta"] = counter(float(group["lr"]))
        state["mu"] = counter(1.0)
        state["ax"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, lambd, alpha = float(group["lr"]), float(group["lambd"]), float(group["alpha"])
        decay, t0 = float(group["weight_decay"]), float(group["t0"])
        for a, g, state in self._active(group):
            step = count(state)
            eta, mu, mean = (state[name]._array for name in ("eta", "mu", "ax"))
            rate = eta.item()
            g = self._gradient(a, g, decay, group["maximize"])
            work = np.multiply(g, rate, out=self._scratch(a, 0))
            a *= 1 - lambd * rate
            a -= work
            if mu.item() == 1:
                np.copyto(mean, a)
            else:
                np.subtract(a, mean, out=work)
                work *= mu.item()
                mean += work
            # In the precision of counters also where a loaded state has another.
            eta[...] = counter(lr / (1 + lambd * lr * step) ** alpha)._array
            mu[...] = counter(1 / max(1, step - t0))._array
