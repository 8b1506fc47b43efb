# SPDX-License-Identifier: BSD-3-Clause
"""What all schedules share."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from typing import Any

from modtree.numpy.tensor.tensor import Tensor
from modtree.optim.lr_scheduler._undo import undone_on_error
from modtree.optim.optimizer import Optimizer

_EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated: call "
    "`scheduler.step()`. With an epoch the closed form of the schedule is used where there is one, "
    "which may differ from the chained form"
)
_ORDER = "see 'How to adjust learning rate' in the documentation of torch.optim"


def group_values(optimizer: Any, key: str) -> list[Any]:
    """An option of every group; tensors are copied, as the next step changes them in place."""
    values = [group[key] for group in optimizer.param_groups]
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


def set_group_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Sets an option of a group; one that is a tensor keeps being that tensor."""
    if isinstance(group[key], Tensor):
        group[key].fill_(float(value))
    else:
        group[key] = value


def per_group(name: str, optimizer: Any, value: Any) -> list[Any]:
    """One value for each group, from one for all or a list.

    Raises:
        ValueError: a list of another length.
    """
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        value = [value] * count
    elif len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(value)} values, param_groups has {count}."
        )
    return [v.clone() if isinstance(v, Tensor) else v for v in value]


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def state_of_callable(function: Any) -> Any:
    """What a state_dict keeps of a callable: nothing of a function, the attributes of an object."""
    return (
        None
        if isinstance(function, types.FunctionType | types.LambdaType)
        else vars(function).copy()
    )


class LRScheduler:
    """Base of the schedules: sets ``lr`` of every parameter group; a subclass gives :meth:`get_lr`.

    Args:
        optimizer: whose learning rates to set.
        last_epoch: the number of the last epoch when training is resumed; the groups then have
            ``initial_lr`` already.

    Raises:
        TypeError: ``optimizer`` is none.
        KeyError: resumed, and a group has no ``initial_lr``.
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        with undone_on_error(self, optimizer):
            for i, group in enumerate(optimizer.param_groups):
                if last_epoch == -1:
                    lr = group["lr"]
                    group.setdefault("initial_lr", lr.clone() if isinstance(lr, Tensor) else lr)
                elif "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                        "scheduler with last_epoch >= 0: load the optimizer's state first, or "
                        "start with last_epoch=-1"
                    )
            self.base_lrs = group_values(optimizer, "initial_lr")
            self.last_epoch = last_epoch
            _notice_steps(optimizer)
            self._initial_step()

    def _initial_step(self) -> None:
        """Sets the learning rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what :meth:`state_dict` returned."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rate of every group that the last step set."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The learning rate of every group for ``last_epoch``, from those that are set. For
        subclasses.
        """
        raise NotImplementedError(f"{type(self).__name__} has no get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch."""
        if self._step_count == 1:
            self._check_order()
        with undone_on_error(self, self.optimizer):
            self._step_count += 1
            if epoch is not None:
                warnings.warn(_EPOCH_WARNING, UserWarning, stacklevel=2)
            self._update_lr(epoch)

    def _check_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, make sure to call `optimizer.step()` before "
                f"`lr_scheduler.step()`; {_ORDER}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: call them in "
                "the opposite order, or the first value of the learning rate schedule is skipped; "
                f"{_ORDER}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        with undone_on_error(self, self.optimizer):
            self._get_lr_called_within_step = True
            try:
                if epoch is None:
                    self.last_epoch += 1
                    values = self.get_lr()
                else:
                    self.last_epoch = epoch
                    values = getattr(self, "_get_closed_form_lr", self.get_lr)()
            finally:
                self._get_lr_called_within_step = False
            self._set(values)

    def _set(self, values: list[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            set_group_value(group, "lr", lr)
        self._last_lr = group_values(self.optimizer, "lr")

    def _warn_outside_step(self) -> None:
        """For :meth:`get_lr`: called by a user it may change the rates a second time."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _current(self) -> list[Any]:
        return group_values(self.optimizer, "lr")

    def _scaled(self, factor: float) -> list[Any]:
        return [group["lr"] * factor for group in self.optimizer.param_groups]


class _LRScheduler(LRScheduler):
    """The name that schedules of older programs derive from."""


def _notice_steps(optimizer: Any) -> None:
    """Makes the optimizer remember that a step was taken, for the warning about the order."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    function = optimizer.step.__func__
    # Weak: the wrapper is an attribute of the optimizer and must not keep it alive.
    ref = weakref.ref(optimizer)

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        owner: Any = ref()
        owner._opt_called = True
        return function(owner, *args, **kwargs)

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = step
