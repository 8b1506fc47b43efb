# SPDX-License-Identifier: BSD-3-Clause
"""Adafactor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree.optim._arrays import (
    ArrayOptimizer,
    at_least,
    check_lr,
    count,
    counter,
    lerp,
    takes_options,
    zeros_like,
)

__all__ = ["Adafactor"]


def _check_decay(value: float) -> None:
    if not value <= 0.0:
        raise ValueError(f"beta2_decay should be <= 0 but is: {value}")


def _check_eps(eps: tuple[float | None, float]) -> None:
    for i, value in enumerate(eps):
        if not (value is None and i == 0):
            at_least(0, f"epsilon{i + 1}")(value)


class Adafactor(ArrayOptimizer):
    """Adam with one running mean for each row and each column instead of one for each element
    (Shazeer and Stern, 2018).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The largest relative step; also the factor of the weight decay.
        beta2_decay: The power of the step's number by which the means become slower.
        eps: The smallest mean (None: the dtype's precision), and the smallest size of a parameter
            that its step is relative to.
        d: The largest root mean square of an update; larger ones are scaled down.
        weight_decay: Factor by which parameters shrink, times ``lr``.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.

    Raises:
        ValueError: An option is out of its range.
    """

    _checks = {  # noqa: RUF012
        "lr": check_lr("Learning rate should be >= 0 but is"),
        "beta2_decay": _check_decay,
        "eps": _check_eps,
        "d": at_least(1, "Clipping threshold d"),
        "weight_decay": at_least(0, "weight_decay"),
    }

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        state["step"] = counter()
        if p.ndim > 1:
            state["row_var"] = p.new_zeros((*p.shape[:-1], 1))
            state["col_var"] = p.new_zeros((*p.shape[:-2], 1, p.shape[-1]))
        else:
            state["variance"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, d = float(group["lr"]), float(group["d"])
        decay = float(group["weight_decay"])
        for a, g, state in self._active(group):
            step = count(state)
            if not a.size:
                continue
            least, smallest = group["eps"]
            least = float(np.finfo(a.dtype).eps) if least is None else float(least)
            step_size = min(lr, step**-0.5) * max(float(smallest), _root_mean_square(a))
            if decay:
                a *= 1 - lr * decay
            update = _mean_square(g, state, step ** float(group["beta2_decay"]), least)
            np.maximum(update, least * least, out=update)
            np.sqrt(update, out=update)
            np.divide(g, update, out=update)
            update *= step_size / max(1.0, _root_mean_square(update) / d)
            if group["maximize"]:
                a += update
            else:
                a -= update


def _root_mean_square(a: Any) -> float:
    return float(np.linalg.norm(a.ravel(order="K"))) / math.sqrt(a.size)


def _mean_square(g: Any, state: dict[str, Any], weight: float, least: float) -> Any:
    """The running mean of the gradient's square: a new array, of rows and columns if it has both.

    Args:
        g: The gradient.
        state: Holds the means, which are brought up to date.
        weight: How much the new square counts.
        least: The smallest mean to divide by.
    """
    square = g * g
    if "variance" in state:
        variance = state["variance"]._array
        lerp(variance, square, weight)
        return variance.copy()
    row, column = state["row_var"]._array, state["col_var"]._array
    lerp(row, square.mean(-1, keepdims=True), weight)
    lerp(column, square.mean(-2, keepdims=True), weight)
    return row * column / np.maximum(row.mean(-2, keepdims=True), least)
