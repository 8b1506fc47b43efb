# SPDX-License-Identifier: BSD-3-Clause
"""Schedules that rise and fall, some together with the momentum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from modtree.optim.lr_scheduler._base import (
    LRScheduler,
    check_optimizer,
    per_group,
    set_group_value,
    state_of_callable,
)
from modtree.optim.lr_scheduler._undo import undone_on_error


class _WithMomentum(LRScheduler):
    """A schedule that may also set the momentum, or Adam's first beta."""

    cycle_momentum: bool
    use_beta1: bool

    def _init_momentum(
        self, cycle: bool, base_momentum: Any, max_momentum: Any, last_epoch: int
    ) -> None:
        self.cycle_momentum = cycle
        if not cycle:
            return
        optimizer = self.optimizer
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        highs = per_group("max_momentum", optimizer, max_momentum)
        lows = per_group("base_momentum", optimizer, base_momentum)
        self._keep_momentums(lows, highs)
        if last_epoch == -1:
            for low, high, group in zip(lows, highs, optimizer.param_groups, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"] = high
                group["base_momentum"] = low

    def _keep_momentums(self, lows: list[Any], highs: list[Any]) -> None:
        """For a schedule that reads them from itself rather than from the groups."""

    def _set_momentum(self, group: dict[str, Any], value: Any) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_WithMomentum):
    """The rate goes up and down in triangles between ``base_lr`` and ``max_lr`` (Smith, 2015); step
    once per batch.

    Args:
        optimizer: whose learning rates to set.
        base_lr: the lower bound, one for all groups or a list.
        max_lr: the upper bound.
        step_size_up: steps of a rise.
        step_size_down: steps of a fall; as many as of a rise if None.
        mode: "triangular"; "triangular2", whose height halves each cycle; "exp_range", whose height
            is ``gamma ** step``.
        gamma: for "exp_range".
        scale_fn: a function for the height instead of a mode.
        scale_mode: whether it gets the number of the "cycle" or of "iterations".
        cycle_momentum: move the momentum the other way.
        base_momentum: its lower bound.
        max_momentum: its upper bound.
        last_epoch: see :class:`LRScheduler`.
    """

    def __init__(
        self,
        optimizer: Any,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[Any], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        with undone_on_error(self, optimizer):
            self.optimizer = optimizer
            base_lrs = per_group("base_lr", optimizer, base_lr)
            if last_epoch == -1:
                for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                    set_group_value(group, "lr", lr)
            self.max_lrs = per_group("max_lr", optimizer, max_lr)
            up = float(step_size_up)
            down = up if step_size_down is None else float(step_size_down)
            self.total_size = up + down
            self.step_ratio = up / self.total_size
            if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
                raise ValueError(f"mode is invalid and scale_fn is None: {mode!r}")
            self.mode = mode
            self.gamma = gamma
            self._scale_fn_custom = scale_fn
            self.scale_mode = scale_mode
            if scale_fn is None:
                self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
            self._init_momentum(cycle_momentum, base_momentum, max_momentum, last_epoch)
            super().__init__(optimizer, last_epoch)
            self.base_lrs = base_lrs

    def _keep_momentums(self, lows: list[Any], highs: list[Any]) -> None:
        self.base_momentums, self.max_momentums = lows, highs

    def scale_fn(self, x: Any) -> float:
        """The height of a triangle."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 2.0 ** (1 - x)
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        if x <= self.step_ratio:
            height = x / self.step_ratio
        else:
            height = (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(
                self.base_momentums, self.max_momentums, self.optimizer.param_groups, strict=True
            ):
                self._set_momentum(group, high - (high - low) * height * scale)
        return [
            low + (high - low) * height * scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and a function given; a callable object is kept by its
        attributes.
        """
        state = super().state_dict()
        if self._scale_fn_custom is not None:
            state["_scale_fn_custom"] = state_of_callable(self._scale_fn_custom)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what :meth:`state_dict` returned; a function stays the one that was given."""
        own = self._scale_fn_custom
        super().load_state_dict(state_dict)
        self._scale_fn_custom = own
        attributes = state_dict["_scale_fn_custom"]
        if attributes is not None:
            own.__dict__.update(attributes)


class CosineAnnealingWarmRestarts(LRScheduler):
    """The rate falls along a cosine to ``eta_min`` and starts again: after ``T_0`` epochs, then
    ``T_mult`` times as many, ... (Loshchilov and Hutter, 2016).

    Args:
        optimizer: whose learning rates to set.
        T_0: epochs until the first restart.
        T_mult: how many times longer each stretch is than the one before.
        eta_min: the lowest rate.
        last_epoch: see :class:`LRScheduler`.

    Raises:
        ValueError: ``T_0`` or ``T_mult`` is no positive integer, or ``eta_min`` no number.
    """

    def __init__(
        self,
        optimizer: Any,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, float | int):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Goes on to the next epoch, or to ``epoch``, which may be a fraction: ``epoch + batch /
        batches``.
        """
        with undone_on_error(self, self.optimizer):
            if epoch is None and self.last_epoch < 0:
                epoch = 0
            if epoch is None:
                epoch = self.last_epoch + 1
                self.T_cur += 1
                if self.T_cur >= self.T_i:
                    self.T_cur %= self.T_i
                    self.T_i *= self.T_mult
            else:
                self._jump(epoch)
            self.last_epoch = math.floor(epoch)
            self._get_lr_called_within_step = True
            try:
                values = self.get_lr()
            finally:
                self._get_lr_called_within_step = False
            self._set(values)

    def _jump(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            # The n-th restart is at T_0 * (1 + T_mult + ... + T_mult**(n - 1)).
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


class OneCycleLR(_WithMomentum):
    """The rate goes up to ``max_lr`` once and down far below its start (Smith and Topin, 2017);
    step once per batch.

    Args:
        optimizer: whose learning rates to set.
        max_lr: the highest rate, one for all groups or a list.
        total_steps: steps of the whole cycle; or give the next two.
        epochs: number of epochs.
        steps_per_epoch: number of steps in each.
        pct_start: the share of the steps in which the rate rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: move the momentum the other way.
        base_momentum: its lower bound, one for all groups or a list.
        max_momentum: its upper bound.
        div_factor: the rate starts from ``max_lr / div_factor``.
        final_div_factor: it ends at that divided by ``final_div_factor``.
        three_phase: first back to the start, as steeply as it rose, and only then to the end.
        last_epoch: see :class:`LRScheduler`.

    Raises:
        ValueError: an option is out of its range; :meth:`step` after the last step.
    """

    def __init__(
        self,
        optimizer: Any,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        with undone_on_error(self, optimizer):
            self.optimizer = optimizer
            self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
            if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
                raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
            if anneal_strategy not in ("cos", "linear"):
                raise ValueError(
                    f"anneal_strategy must be one of 'cos' or 'linear', instead got "
                    f"{anneal_strategy}"
                )
            self._anneal_func_type = anneal_strategy
            top = float(pct_start * self.total_steps)
            last = self.total_steps - 1
            if three_phase:
                self._schedule_phases = [
                    _phase(top - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                    _phase(2 * top - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                    _phase(last, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
                ]
            else:
                self._schedule_phases = [
                    _phase(top - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                    _phase(last, "max_lr", "min_lr", "base_momentum", "max_momentum"),
                ]
            max_lrs = per_group("max_lr", optimizer, max_lr)
            if last_epoch == -1:
                for highest, group in zip(max_lrs, optimizer.param_groups, strict=True):
                    group["initial_lr"] = highest / div_factor
                    group["max_lr"] = highest
                    group["min_lr"] = group["initial_lr"] / final_div_factor
            self._init_momentum(cycle_momentum, base_momentum, max_momentum, last_epoch)
            super().__init__(optimizer, last_epoch)

    def _between(self, start: Any, end: Any, share: float) -> Any:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        now = self.last_epoch
        if now > self.total_steps:
            raise ValueError(
                f"Tried to step {now} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start: float = 0.0
        for phase in self._schedule_phases[:-1]:
            if now <= phase["end_step"]:
                break
            start = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        share = (now - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                low, high = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._between(low, high, share))
        return rates


def _phase(
    end_step: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str
) -> dict[str, Any]:
    # Names of options of the groups, not values: the groups may differ.
    return {
        "end_step": end_step,
        "start_lr": start_lr,
        "end_lr": end_lr,
        "start_momentum": start_momentum,
        "end_momentum": end_momentum,
    }


def _total_steps(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is not None:
        _check_positive("total_steps", total_steps)
        return total_steps
    if epochs is None or steps_per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    _check_positive("epochs", epochs)
    _check_positive("steps_per_epoch", steps_per_epoch)
    return epochs * steps_per_epoch


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"Expected positive integer {name}, but got {value}")
