# SPDX-License-Identifier: BSD-3-Clause
"""Relatives of Adam: NAdam, RAdam and Adamax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree.optim._arrays import (
    ArrayOptimizer,
    count,
    counter,
    real_parts,
    start_moments,
    takes_options,
    weight_decay,
    zeros_like,
)

__all__ = ["Adamax", "NAdam", "RAdam"]


def _mean_towards(mean: Any, target: Any, share: float, work: Any) -> None:
    """mean += share * (target - mean)"""
    np.subtract(target, mean, out=work)
    work *= share
    mean += work


def _mean_of_squares(square: Any, g: Any, beta: float, work: Any) -> None:
    """square = beta * square + (1 - beta) * g * g"""
    np.multiply(g, g, out=work)
    work *= 1 - beta
    square *= beta
    square += work


class NAdam(ArrayOptimizer):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        betas: How much of the two means stays at each step.
        eps: Added to the root of the second mean.
        weight_decay: Factor of the L2 penalty.
        momentum_decay: How fast the schedule of the momentum rises.
        decoupled_weight_decay: Shrink the weights themselves, as :class:`AdamW` does, instead of
            changing the gradient.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        capturable: Kept for torch's state dicts; changes nothing.
        differentiable: False only: steps are not recorded.

    Raises:
        ValueError: An option is out of its range.
    """

    _order = (
        "lr",
        "betas",
        "eps",
        "weight_decay",
        "momentum_decay",
        "decoupled_weight_decay",
        "maximize",
    )

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        state["mu_product"] = counter(1.0)
        start_moments(state, p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps = float(group["lr"]), float(group["eps"])
        beta1, beta2 = map(float, group["betas"])
        shrink, decay = weight_decay(group, lr)
        momentum_decay, maximize = float(group["momentum_decay"]), group["maximize"]
        for a, g, state in self._active(group):
            steps = count(state)
            mu = beta1 * (1 - 0.5 * 0.96 ** (steps * momentum_decay))
            mu_next = beta1 * (1 - 0.5 * 0.96 ** ((steps + 1) * momentum_decay))
            product = state["mu_product"]._array
            product *= mu
            of_grad = lr * (1 - mu) / (1 - product.item())
            of_mean = lr * mu_next / (1 - product.item() * mu_next)
            if shrink != 1:
                a *= shrink
            g = self._gradient(a, g, decay, maximize)
            for part, grad, mean, square in real_parts(
                a, g, state["exp_avg"]._array, state["exp_avg_sq"]._array
            ):
                work, update = self._scratch(part, 1), self._scratch(part, 2)
                _mean_towards(mean, grad, 1 - beta1, work)
                _mean_of_squares(square, grad, beta2, work)
                np.multiply(grad, of_grad, out=update)
                np.multiply(mean, of_mean, out=work)
                update += work
                np.divide(square, 1 - beta2**steps, out=work)
                np.sqrt(work, out=work)
                work += eps
                update /= work
                part -= update


class RAdam(ArrayOptimizer):
    """Adam that trusts its second mean only once enough gradients are in it (Liu et al., 2019).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        betas: How much of the two means stays at each step.
        eps: Added to the root of the second mean.
        weight_decay: Factor of the L2 penalty.
        decoupled_weight_decay: Shrink the weights themselves, as :class:`AdamW` does, instead of
            changing the gradient.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        capturable: Kept for torch's state dicts; changes nothing.
        differentiable: False only: steps are not recorded.

    Raises:
        ValueError: An option is out of its range.
    """

    _order = ("lr", "betas", "eps", "weight_decay", "maximize", "foreach", "capturable")

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        start_moments(state, p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps = float(group["lr"]), float(group["eps"])
        beta1, beta2 = map(float, group["betas"])
        shrink, decay = weight_decay(group, lr)
        longest, maximize = 2 / (1 - beta2) - 1, group["maximize"]
        for a, g, state in self._active(group):
            steps = count(state)
            correction2 = 1 - beta2**steps
            length = longest - 2 * steps * beta2**steps / correction2
            rate = lr / (1 - beta1**steps)
            adaptive = length > 5
            if adaptive:
                rectify = (length - 4) * (length - 2) * longest
                rectify /= (longest - 4) * (longest - 2) * length
                rate *= (rectify * correction2) ** 0.5
            if shrink != 1:
                a *= shrink
            g = self._gradient(a, g, decay, maximize)
            for part, grad, mean, square in real_parts(
                a, g, state["exp_avg"]._array, state["exp_avg_sq"]._array
            ):
                work = self._scratch(part, 1)
                _mean_towards(mean, grad, 1 - beta1, work)
                _mean_of_squares(square, grad, beta2, work)
                if adaptive:
                    np.sqrt(square, out=work)
                    work += eps
                    np.divide(mean, work, out=work)
                    work *= rate
                else:
                    np.multiply(mean, rate, out=work)
                part -= work


class Adamax(ArrayOptimizer):
    """Adam with the largest recent gradient in place of the second mean (Kingma and Ba, 2014).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        betas: How much of the mean and of the largest gradient stays at each step.
        eps: Added to the gradient's magnitude.
        weight_decay: Factor of the L2 penalty.
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        differentiable: False only: steps are not recorded.
        capturable: Kept for torch's state dicts; changes nothing.

    Raises:
        ValueError: An option is out of its range.
    """

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None: ...

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        state["exp_avg"] = zeros_like(p)
        state["exp_inf"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps, decay = float(group["lr"]), float(group["eps"]), float(group["weight_decay"])
        beta1, beta2 = map(float, group["betas"])
        maximize = group["maximize"]
        for a, g, state in self._active(group):
            rate = lr / (1 - beta1 ** count(state))
            g = self._gradient(a, g, decay, maximize)
            for part, grad, mean, largest in real_parts(
                a, g, state["exp_avg"]._array, state["exp_inf"]._array
            ):
                work = self._scratch(part, 1)
                _mean_towards(mean, grad, 1 - beta1, work)
                np.abs(grad, out=work)
                work += eps
                largest *= beta2
                np.maximum(largest, work, out=largest)
                np.divide(mean, largest, out=work)
                work *= rate
                part -= work
