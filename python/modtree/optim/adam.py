# SPDX-License-Identifier: BSD-3-Clause
"""Adam, and AdamW with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from modtree._C import kernels
from modtree._tensor.tensor import Tensor
from modtree.optim._arrays import (
    ArrayOptimizer,
    array_of,
    check_betas,
    check_lr,
    check_not_negative,
    count,
    counter,
    fits_kernel,
    real_parts,
    zeros_like,
)

__all__ = ["Adam", "AdamW"]


class Adam(ArrayOptimizer):
    """Steps scaled by running means of the gradient and of its square (Kingma and Ba, 2014).

    Args:
        params: tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: the learning rate.
        betas: how much of the two means stays at each step.
        eps: added to the root of the second mean.
        weight_decay: factor of the L2 penalty.
        amsgrad: divide by the largest second mean so far.
        maximize: go up instead of down.
        decoupled_weight_decay: shrink the weights themselves, as :class:`AdamW` does, instead of
            changing the gradient.

    Raises:
        ValueError: an option is out of its range.
    """

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
    ) -> None:
        check_lr(lr)
        check_not_negative("epsilon value", eps)
        check_betas(betas)
        check_not_negative("weight_decay value", weight_decay)
        for i, beta in enumerate(betas):
            if isinstance(beta, Tensor) and beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def _start(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = counter()
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)

    def _step_group(self, group: dict[str, Any]) -> None:
        lr, eps, decay = float(group["lr"]), float(group["eps"]), float(group["weight_decay"])
        beta1, beta2 = map(float, group["betas"])
        amsgrad, maximize = group["amsgrad"], group["maximize"]
        settings = {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "eps": eps,
            "weight_decay": decay,
            "decoupled": bool(group["decoupled_weight_decay"]),
            "maximize": bool(maximize),
        }
        shrink = 1 - lr * decay if group["decoupled_weight_decay"] else 1.0
        decay = 0.0 if group["decoupled_weight_decay"] else decay
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
                adam_update(*part, self._scratch(part[0], 1), beta1, beta2, rate, eps * root)


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

    Arguments as :class:`Adam`.
    """

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
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
