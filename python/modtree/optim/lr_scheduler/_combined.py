# SPDX-License-Identifier: BSD-3-Clause
"""Schedules made of schedules: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from modtree.optim.lr_scheduler._base import LRScheduler, set_group_value
from modtree.optim.lr_scheduler._plateau import ReduceLROnPlateau
from modtree.optim.lr_scheduler._undo import undone_on_error


class _Combined(LRScheduler):
    _schedulers: Any

    def _check(self, optimizer: Any, schedulers: Sequence[Any]) -> None:
        name = type(self).__name__
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler, whose step() needs a "
                    f"metric, but got one at index {i} in the given schedulers sequence."
                )
            if optimizer is not scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got "
                    f"scheduler {type(scheduler).__name__} at index {i} with another "
                    f"{type(scheduler.optimizer).__name__}."
                )

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, with the state of each schedule."""
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what :meth:`state_dict` returned."""
        own = self._schedulers
        inner = (name for state in state_dict["_schedulers"] for name in state)
        with undone_on_error(self, self.optimizer, [*state_dict, *inner]):
            self.__dict__.update(state_dict)
            self._schedulers = own
            for scheduler, state in zip(own, state_dict["_schedulers"], strict=True):
                scheduler.load_state_dict(state)


class SequentialLR(_Combined):
    """Schedules one after the other; each starts anew at its milestone.

    Args:
        optimizer: whose learning rates to set.
        schedulers: the schedules, all of this optimizer.
        milestones: the epochs at which the second, third, ... begin.
        last_epoch: see :class:`LRScheduler`.

    Raises:
        ValueError: none are given, the milestones are not one less, or a schedule cannot be
            combined.
    """

    def __init__(
        self,
        optimizer: Any,
        schedulers: list[Any],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler, but got no scheduler."
            )
        self._check(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        with undone_on_error(self, optimizer):
            self.last_epoch = last_epoch + 1
            self.optimizer = optimizer
            # Each schedule took its first step when it was made: undo them all, and take that of
            # the first to act.
            for group in optimizer.param_groups:
                set_group_value(group, "lr", group["initial_lr"])
            _step_back(self)
            first = schedulers[bisect_right(milestones, 0)]
            first._initial_step()
            self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Goes on to the next epoch."""
        with undone_on_error(self, self.optimizer):
            self.last_epoch += 1
            i = bisect_right(self._milestones, self.last_epoch)
            scheduler = self._schedulers[i]
            if i > 0 and self._milestones[i - 1] == self.last_epoch:
                scheduler._update_lr(0)
            else:
                scheduler.step()
            self._last_lr = scheduler.get_last_lr()


def _step_back(scheduler: Any) -> None:
    if hasattr(scheduler, "_schedulers"):
        for inner in scheduler._schedulers:
            _step_back(inner)
    elif hasattr(scheduler, "last_epoch"):
        scheduler.last_epoch -= 1


class ChainedScheduler(_Combined):
    """Schedules that all act at every step, in order.

    Args:
        schedulers: the schedules, all of one optimizer.
        optimizer: theirs, if given.

    Raises:
        ValueError: none are given, or a schedule cannot be combined.
    """

    def __init__(self, schedulers: Sequence[Any], optimizer: Any = None) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no "
                f"scheduler."
            )
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        self._check(optimizer, schedulers)
        self._schedulers = schedulers
        self.optimizer = optimizer
        self._last_lr = self._current()

    def step(self) -> None:  # type: ignore[override]
        """Goes on to the next epoch."""
        with undone_on_error(self, self.optimizer):
            for scheduler in self._schedulers:
                scheduler.step()
            self._last_lr = self._current()
