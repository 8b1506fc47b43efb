# SPDX-License-Identifier: BSD-3-Clause
"""SparseAdam, which is refused when it steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modtree.optim._arrays import ArrayOptimizer, check_lr, takes_options

__all__ = ["SparseAdam"]


def _check_positive_lr(lr: Any) -> None:
    check_lr("Invalid learning rate")(lr)
    if lr == 0:
        raise ValueError(f"Invalid learning rate: {lr}")


def _check_positive_eps(eps: float) -> None:
    if not eps > 0.0:
        raise ValueError(f"Invalid epsilon value: {eps}")


class SparseAdam(ArrayOptimizer):
    """Adam for sparse gradients. There are none here: also those of ``Embedding(sparse=True)`` are
    dense, which torch's SparseAdam refuses as well. It can be made and loaded; its step raises.

    Args:
        params: Tensors, ``(name, tensor)`` pairs or parameter groups.
        lr: The learning rate.
        betas: How much of the running means of gradient and square stays at each step.
        eps: Added to the denominator.
        maximize: Go up instead of down.

    Raises:
        ValueError: An option is out of its range, or a parameter is complex.
    """

    _checks = {"lr": _check_positive_lr, "eps": _check_positive_eps}  # noqa: RUF012

    @takes_options
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None: ...

    def _set_options(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        super()._set_options(params, options)
        wrong = [
            [i, j]
            for i, group in enumerate(self.param_groups)
            for j, p in enumerate(group["params"])
            if p.is_complex()
        ]
        if wrong:
            raise ValueError(
                f"Complex params at indices {wrong}: SparseAdam does not support complex parameters"
            )

    def _step_group(self, group: dict[str, Any]) -> None:
        if any(p.grad is not None for p in group["params"]):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead; "
                "all gradients are dense here, those of Embedding(sparse=True) too"
            )
