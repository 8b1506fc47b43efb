# SPDX-License-Identifier: BSD-3-Clause
"""Adam, and AdamW with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree._C import as_tuple, kernels
from modtree.numpy.tensor.tensor import Tensor
from modtree.optim._arrays import (
    ArrayOptimizer,
    array_of,
    count,
    counter,
    fits_kernel,
    real_parts,
    start_moments,
    takes_options,
    weight_decay,
    zeros_like,
)

__all__ = ["Adam", "AdamW"]


class Adam(ArrayOptimizer):
    """Steps scaled by running means of the gradient and of its square (Kingma and Ba, 2014).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        betas: How much of the two means stays at each step.
        eps: Added to the root of the second mean.
        weight_decay: Factor of the L2 penalty.
        amsgrad: Divide by the largest second mean so far (Reddi et al., 2018).
        foreach: Kept for torch's state dicts; changes nothing.
        maximize: Go up instead of down.
        capturable: Kept for torch's state dicts; changes nothing.
        differentiable: False only: steps are not recorded.
        fused: Kept for torch's state dicts; changes nothing.
        decoupled_weight_decay: Shrink the weights themselves, as :class:`AdamW` does, instead of
            changing the gradient.

    Raises:
        ValueError: An option is out of its range.
    """

    _order = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None: ...

    def _set_options(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        betas = options["betas"]
        for i, beta in enumerate(betas):
            if isinstance(beta, Tensor) and beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        super()._set_options(params, {**options, "betas": as_tuple(betas)})

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        start_moments(state, p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps, decay = float(group["lr"]), float(group["eps"]), float(group["weight_decay"])
        beta1, beta2 = map(float, group["betas"])
        amsgrad, maximize = group["amsgrad"], group["maximize"]
        settings: dict[str, Any] = {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "eps": eps,
            "weight_decay": decay,
            "decoupled": bool(group["decoupled_weight_decay"]),
            "maximize": bool(maximize),
        }
        shrink, decay = weight_decay(group, lr)
        for a, g, state in self._active(group):
            steps = count(state)
            mean, square = state["exp_avg"]._array, state["exp_avg_sq"]._array
            largest = array_of(state, "max_exp_avg_sq") if amsgrad else None
            if fits_kernel(a, mean, square, largest):
                kernels.adam_step(a, g, mean, square, largest, step=steps, **settings)
                continue
            root = (1 - beta2**steps) ** 0.5
            rate = lr * root / (1 - beta1**steps)
            if shrink != 1:
                a *= shrink
            g = self._gradient(a, g, decay, maximize)
            for part in real_parts(a, g, mean, square, largest):
                work = self._scratch(part[0], 1)
                adam_update(*(*part, work, beta1, beta2, rate, eps * root))


def adam_update(
    a: Any,
    g: Any,
    mean: Any,
    square: Any,
    largest: Any,
    work: Any,
    beta1: float,
    beta2: float,
    rate: float,
    eps: float,
) -> None:
    """The kernel's step for arrays that it does not take; ``rate`` and ``eps`` have both means'
    corrections in them.
    """
    np.subtract(g, mean, out=work)
    work *= 1 - beta1
    mean += work
    np.multiply(g, g, out=work)
    work *= 1 - beta2
    square *= beta2
    square += work
    if largest is not None:
        square = np.maximum(largest, square, out=largest)
    np.sqrt(square, out=work)
    work += eps
    np.divide(mean, work, out=work)
    work *= rate
    a -= work


class AdamW(Adam):
    """Adam whose weight decay shrinks the weights instead of entering the means (Loshchilov and
    Hutter, 2017).

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        betas: How much of the two means stays at each step.
        eps: Added to the root of the second mean.
        weight_decay: How much the weights shrink, in units of the learning rate.
        amsgrad: Divide by the largest second mean so far (Reddi et al., 2018).
        maximize: Go up instead of down.
        foreach: Kept for torch's state dicts; changes nothing.
        capturable: Kept for torch's state dicts; changes nothing.
        differentiable: False only: steps are not recorded.
        fused: Kept for torch's state dicts; changes nothing.

    Raises:
        ValueError: An option is out of its range.
    """

    _fixed = {"decoupled_weight_decay": True}  # noqa: RUF012

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None: ...
