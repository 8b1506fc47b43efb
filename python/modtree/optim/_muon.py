# SPDX-License-Identifier: BSD-3-Clause
"""Muon."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree.optim._arrays import (
    ArrayOptimizer,
    at_least,
    check_lr,
    lerp,
    takes_options,
    zeros_like,
)

__all__ = ["Muon"]

_ADJUSTMENTS = ("original", "match_rms_adamw")


def _check_adjustment(name: str | None) -> None:
    if name is not None and name not in _ADJUSTMENTS:
        raise ValueError(
            f"Adjust learning rate function {name} is not supported; use one of {_ADJUSTMENTS}"
        )


class Muon(ArrayOptimizer):
    """For weights of hidden layers, which are matrices: the gradient's running mean with all its
    singular values brought close to 1 (Jordan et al., 2024).

    Other parameters need another optimizer. The iteration runs in the parameter's dtype, in float32
    at least, where torch has bfloat16.

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups; matrices only.
        lr: The learning rate.
        weight_decay: Factor by which parameters shrink, times ``lr``.
        momentum: How much of the mean stays at each step.
        nesterov: Look ahead along the mean.
        ns_coefficients: The polynomial of the Newton-Schulz iteration: of x, x^3 and x^5.
        eps: The smallest norm to divide by.
        ns_steps: The number of iterations.
        adjust_lr_fn: How the shape changes the rate: ``"original"`` (also for None) makes it larger
            for tall matrices, ``"match_rms_adamw"`` brings updates to the size of AdamW's.

    Raises:
        ValueError: An option is out of its range, or a parameter is no matrix.
    """

    _checks = {  # noqa: RUF012
        "lr": check_lr("Learning rate should be >= 0 but is"),
        "momentum": at_least(0, "momentum"),
        "weight_decay": at_least(0, "weight decay"),
        "eps": None,
        "adjust_lr_fn": _check_adjustment,
    }

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None: ...

    def _set_options(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        super()._set_options(params, options)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with "
                        f"size: {p.size()}"
                    )

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        state["momentum_buffer"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, momentum = float(group["lr"]), float(group["momentum"])
        if group["ns_steps"] >= 100:
            raise ValueError(
                f"Number of steps must be less than 100 for computational efficiency, got "
                f"{group['ns_steps']}"
            )
        if len(group["ns_coefficients"]) != 3:
            raise ValueError(
                f"Coefficients must be a tuple of exactly 3 values, got {group['ns_coefficients']}"
            )
        for a, g, state in self._active(group):
            mean = state["momentum_buffer"]._array
            lerp(mean, g, 1 - momentum)
            update = mean
            if group["nesterov"]:
                update = np.array(g)
                lerp(update, mean, momentum)
            update = _orthogonalized(
                update, group["ns_coefficients"], group["ns_steps"], float(group["eps"])
            )
            update *= lr * _adjustment(group["adjust_lr_fn"], a.shape)
            a *= 1 - lr * float(group["weight_decay"])
            np.subtract(a, update, out=a, casting="same_kind")


def _adjustment(name: str | None, shape: tuple[int, int]) -> float:
    rows, columns = shape
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns)) if columns else 1.0


def _orthogonalized(matrix: Any, coefficients: Any, steps: int, eps: float) -> Any:
    """A new matrix with the singular vectors of the given one and singular values near 1.

    Args:
        matrix: The matrix.
        coefficients: Of the odd polynomial that each step applies to the singular values.
        steps: How often.
        eps: The smallest norm to divide by.
    """
    first, third, fifth = map(float, coefficients)
    kind = np.result_type(matrix.dtype, np.float32)
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).astype(kind)
    x /= max(float(np.linalg.norm(x)), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = first * x + (third * gram + fifth * (gram @ gram)) @ x
    return x.T if tall else x
