# SPDX-License-Identifier: BSD-3-Clause
"""Schedules that follow one formula.

Each computes the next rate from the rate that is set, so that several can act on one optimizer;
``_get_closed_form_lr`` computes it from the number of the epoch.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from modtree.optim.lr_scheduler._base import LRScheduler, state_of_callable
from modtree.optim.lr_scheduler._undo import undone_on_error


class _ByFunction(LRScheduler):
    """A schedule by functions of the epoch, one for all groups or a list with one for each."""

    def __init__(
        self,
        optimizer: Any,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        if not isinstance(lr_lambda, list | tuple):
            lr_lambda = [lr_lambda] * count
        elif len(lr_lambda) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(lr_lambda)}")
        self.lr_lambdas = list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions; callable objects are kept by their
        attributes.
        """
        state = super().state_dict()
        state["lr_lambdas"] = [state_of_callable(function) for function in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what :meth:`state_dict` returned; functions stay those that were given."""
        own = self.lr_lambdas
        with undone_on_error(self, self.optimizer, state_dict):
            self.__dict__.update(state_dict)
            self.lr_lambdas = own
            for function, attributes in zip(own, state_dict["lr_lambdas"], strict=False):
                if attributes is not None:
                    function.__dict__.update(attributes)


class LambdaLR(_ByFunction):
    """The initial rate times ``lr_lambda(epoch)``.

    Args:
        optimizer: whose learning rates to set.
        lr_lambda: the function, or a list with one for each group.
        last_epoch: see :class:`LRScheduler`.
    """

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return [
            base * function(self.last_epoch)
            for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(_ByFunction):
    """The rate times ``lr_lambda(epoch)`` at every epoch.

    Args:
        optimizer: whose learning rates to set.
        lr_lambda: the function, or a list with one for each group.
        last_epoch: see :class:`LRScheduler`.
    """

    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: int = -1) -> None:
        for function in lr_lambda if isinstance(lr_lambda, list | tuple) else (lr_lambda,):
            if not callable(function):
                raise TypeError(
                    f"lr_lambda should be a function, but got {type(function).__name__}"
                )
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._current()
        return [
            group["lr"] * function(self.last_epoch)
            for function, group in zip(self.lr_lambdas, self.optimizer.param_groups, strict=True)
        ]


class StepLR(LRScheduler):
    """The rate times ``gamma`` every ``step_size`` epochs.

    Args:
        optimizer: whose learning rates to set.
        step_size: epochs between two changes.
        gamma: the factor.
        last_epoch: see :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._current()
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        factor = self.gamma ** (self.last_epoch // self.step_size)
        return [base * factor for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times ``gamma`` at each epoch in ``milestones``; as often as it stands there.

    Args:
        optimizer: whose learning rates to set.
        milestones: the epochs.
        gamma: the factor.
        last_epoch: see :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Any, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        times = self.milestones.get(self.last_epoch)
        return self._current() if times is None else self._scaled(self.gamma**times)

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times ``factor`` until epoch ``total_iters``.

    Args:
        optimizer: whose learning rates to set.
        factor: the factor.
        total_iters: how many epochs it holds.
        last_epoch: see :class:`LRScheduler`.

    Raises:
        ValueError: ``factor`` is not in [0, 1].
    """

    def __init__(
        self, optimizer: Any, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(
                f"Constant multiplicative factor expected to be between 0 and 1, got {factor}."
            )
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        if self.last_epoch == self.total_iters:
            return self._scaled(1.0 / self.factor)
        return self._current()

    def _get_closed_form_lr(self) -> list[Any]:
        factor = 1 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The rate times a factor that goes from ``start_factor`` to ``end_factor`` in ``total_iters``
    epochs.

    Args:
        optimizer: whose learning rates to set.
        start_factor: the first factor.
        end_factor: the last factor.
        total_iters: how many epochs it takes from one to the other.
        last_epoch: see :class:`LRScheduler`.

    Raises:
        ValueError: ``start_factor`` is not in (0, 1], or ``end_factor`` not in [0, 1].
    """

    def __init__(
        self,
        optimizer: Any,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError(
                f"Starting multiplicative factor expected to be greater than 0 and less or equal "
                f"to 1, got {start_factor}."
            )
        if not 0 <= end_factor <= 1:
            raise ValueError(
                f"Ending multiplicative factor expected to be between 0 and 1, got {end_factor}."
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._scaled(1 + rise / before)

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * share
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times ``gamma`` every epoch.

    Args:
        optimizer: whose learning rates to set.
        gamma: the factor.
        last_epoch: see :class:`LRScheduler`.
    """

    def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return self._current() if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The rate falls to 0 in ``total_iters`` epochs, as ``(1 - epoch / total_iters) ** power``.

    Args:
        optimizer: whose learning rates to set.
        total_iters: how many epochs it takes to 0.
        power: the exponent.
        last_epoch: see :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Any, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        left = 1 - self.last_epoch / self.total_iters
        left_before = 1 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((left / left_before) ** self.power)

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """The rate swings between its first value and ``eta_min``, half a cosine in ``T_max`` epochs
    (Loshchilov and Hutter, 2016).

    Args:
        optimizer: whose learning rates to set.
        T_max: epochs of half a cosine.
        eta_min: the lowest rate.
        last_epoch: see :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._current()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # Out of the minimum, where the ratio below would divide by 0.
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                group["lr"] + (base - self.eta_min) * rise
                for base, group in zip(self.base_lrs, groups, strict=True)
            ]
        height = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        height_before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        ratio = height / height_before
        return [ratio * (group["lr"] - self.eta_min) + self.eta_min for group in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]
