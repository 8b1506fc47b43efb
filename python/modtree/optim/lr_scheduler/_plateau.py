# SPDX-License-Identifier: BSD-3-Clause
"""A schedule that looks at how training goes."""

from __future__ import annotations

import math
import warnings
from typing import Any

from modtree.optim.lr_scheduler._base import (
    _EPOCH_WARNING,
    LRScheduler,
    check_optimizer,
    set_group_value,
)
from modtree.optim.lr_scheduler._undo import undone_on_error


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` when a metric has not improved for more than ``patience`` steps.

    Args:
        optimizer: whose learning rates to set.
        mode: "min" if smaller metrics are better, "max" if larger.
        factor: below 1.
        patience: how many steps without improvement are borne.
        threshold: what counts as improvement: a share of the best metric, or with
            ``threshold_mode`` "abs" a difference.
        threshold_mode: "rel" or "abs".
        cooldown: how many steps after a change are not counted.
        min_lr: where the rate stops falling: one for all groups or a list.
        eps: smaller changes are not made.

    Raises:
        ValueError: ``factor``, ``mode``, ``threshold_mode`` or the length of ``min_lr`` is wrong.
    """

    def __init__(
        self,
        optimizer: Any,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, got {factor}")
        self.factor = factor
        check_optimizer(optimizer)
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        self.default_min_lr: Any = None
        if not isinstance(min_lr, list | tuple):
            self.default_min_lr = min_lr
            min_lr = [min_lr] * count
        elif len(min_lr) != count:
            raise ValueError(f"expected {count} min_lrs, got {len(min_lr)}")
        self.min_lrs = list(min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._current()
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Takes the metric of the next epoch, a number or a tensor with one element."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(_EPOCH_WARNING, UserWarning, stacklevel=2)
        with undone_on_error(self, self.optimizer):
            self.last_epoch = epoch
            if self._is_better(current, self.best):
                self.best = current
                self.num_bad_epochs = 0
            else:
                self.num_bad_epochs += 1
            if self.in_cooldown:
                self.cooldown_counter -= 1
                self.num_bad_epochs = 0
            if self.num_bad_epochs > self.patience:
                self._reduce_lr(epoch)
                self.cooldown_counter = self.cooldown
                self.num_bad_epochs = 0
            self._last_lr = self._current()

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due "
                    "to a new param group being added to the optimizer. Please modify the "
                    "`min_lrs` field to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, lowest)
            if old - new > self.eps:
                set_group_value(group, "lr", new)

    @property
    def in_cooldown(self) -> bool:
        """Whether this is one of the steps after a change that are not counted."""
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            bound = best * (1 + sign * self.threshold)
        else:
            bound = best + sign * self.threshold
        return a < bound if self.mode == "min" else a > bound

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what :meth:`state_dict` returned."""
        with undone_on_error(self, self.optimizer, state_dict):
            super().load_state_dict(state_dict)
            self._init_is_better(self.mode, self.threshold, self.threshold_mode)
