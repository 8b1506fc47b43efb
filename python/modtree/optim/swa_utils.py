# SPDX-License-Identifier: BSD-3-Clause
"""Averages of models over training: equal (SWA) or exponential (EMA) ones."""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from modtree.core import families
from modtree.core.module import Module
from modtree.core.undo import modes_kept_on_error, plain_methods
from modtree.nn.batchnorm import _BatchNorm
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.optim.lr_scheduler._base import LRScheduler, per_group
from modtree.optim.lr_scheduler._undo import undone_on_error

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _tensors(model: Any) -> Iterator[Any]:
    return itertools.chain(model.parameters(), model.buffers())


@contextlib.contextmanager
def _recording_nothing(tensors: Iterable[Any]) -> Iterator[None]:
    """No library records within it: modtree, and those of the tensors."""
    found = {id(family): family for family in map(families.find, set(map(type, tensors)))}
    with contextlib.ExitStack() as stack:
        stack.enter_context(no_grad())
        for family in found.values():
            context = None if family is None else family.no_grad()
            if context is not None:
                stack.enter_context(context)
        yield


def _can_be_mixed(tensor: Any) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# -- averages --------------------------------------------------------------------------------------


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """A function of the average of a tensor, its new value and the number of values so far: the
    exponential average.

    Raises:
        ValueError: ``decay``, the part of the average that stays, is not between 0 and 1.
    """
    _check_decay(decay)

    def ema_update(averaged: Any, current: Any, num_averaged: Any) -> Any:
        with _recording_nothing([averaged]):
            return decay * averaged + (1 - decay) * current

    return ema_update


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """A function of the average of a tensor, its new value and the number of values so far: the
    mean of all.
    """

    def swa_update(averaged: Any, current: Any, num_averaged: Any) -> Any:
        with _recording_nothing([averaged]):
            return averaged + (current - averaged) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """:func:`get_ema_avg_fn` for lists of tensors of one dtype, in place.

    Raises:
        ValueError: ``decay``, the part of the average that stays, is not between 0 and 1.
    """
    _check_decay(decay)

    def ema_update(averaged: list[Any], current: list[Any], num_averaged: Any) -> None:
        with _recording_nothing(averaged):
            for mean, value in zip(averaged, current, strict=True):
                if _can_be_mixed(mean):
                    mean.lerp_(value, 1 - decay)
                else:
                    mean.copy_(mean * decay + value * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """:func:`get_swa_avg_fn` for lists of tensors of one dtype, in place."""

    def swa_update(averaged: list[Any], current: list[Any], num_averaged: Any) -> None:
        with _recording_nothing(averaged):
            # A tensor is divided in its own precision.
            weight = float(1 / (num_averaged + 1))
            for mean, value in zip(averaged, current, strict=True):
                if _can_be_mixed(mean):
                    mean.lerp_(value, weight)
                else:
                    mean.copy_(mean + (value - mean) * weight)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are the averages of those that the model had at each
    :meth:`update_parameters`.

    Args:
        model: The model; it is copied to ``module``.
        device: Where the averages are kept.
        avg_fn: A function of an average, a new value and the number of values so far, which returns
            the new average; the mean when left out.
        multi_avg_fn: The same for lists of tensors of one device and dtype, changed in place.
        use_buffers: Average the buffers too; else they are those of the last update.

    Raises:
        AssertionError: Both functions are given.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> swa = mt.optim.swa_utils
        >>> averaged = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
        >>> for _ in range(3):
        ...     averaged.update_parameters(model)
        >>> averaged.n_averaged
        tensor(3)
        >>> mt.allclose(averaged.module.weight, model.weight)
        True
    """

    n_averaged: Any
    module: Any

    def __init__(
        self,
        model: Any,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Callable[[Any, Any, Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        family = families.family_of(next(_tensors(model), None))
        library: Any = importlib.import_module("modtree")
        if family is not None:
            library = family.library("AveragedModel")
        count = library.tensor(0, dtype=library.long, device=device)
        self.register_buffer("n_averaged", count)
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model computes."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Any) -> None:
        """Takes the values that the model has now into the averages; the first are copied."""
        chosen = _tensors if self.use_buffers else (lambda m: m.parameters())
        pairs = list(zip(chosen(self.module), chosen(model), strict=False))
        means = [mean.detach() for mean, _ in pairs]
        values = [value.detach().to(mean.device) for mean, value in pairs]
        if self.n_averaged == 0:
            for mean, value in zip(means, values, strict=True):
                mean.copy_(value)
        elif self.multi_avg_fn is not None:
            self._update_lists(means, values)
        else:
            average = get_swa_avg_fn() if self.avg_fn is None else self.avg_fn
            averages = [
                average(mean, value, self.n_averaged.to(mean.device))
                for mean, value in zip(means, values, strict=True)
            ]
            for mean, new in zip(means, averages, strict=True):
                mean.copy_(new)
        if not self.use_buffers:
            for kept, last in zip(self.module.buffers(), model.buffers(), strict=True):
                kept.detach().copy_(last.detach().to(kept.device))
        self.n_averaged += 1

    def _update_lists(self, means: list[Any], values: list[Any]) -> None:
        groups: dict[Any, tuple[list[Any], list[Any]]] = {}
        for mean, value in zip(means, values, strict=True):
            group = groups.setdefault((str(mean.device), mean.dtype), ([], []))
            group[0].append(mean)
            group[1].append(value)
        for of_group in groups.values():
            count = self.n_averaged.to(of_group[0][0].device)
            self.multi_avg_fn(*of_group, count)  # type: ignore[misc]


# -- statistics and rates --------------------------------------------------------------------------


@contextlib.contextmanager
def _statistics_kept_on_error(norms: list[Any]) -> Iterator[None]:
    """When the block raises, the normalizations have their statistics again."""
    tensors = [b for each in norms for b in each.buffers(recurse=False) if b is not None]
    values = [tensor.clone() for tensor in tensors]
    try:
        yield
    except BaseException:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
        raise


def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Computes the running statistics of all batch normalizations of a model anew: the means over
    the batches of a loader.

    Args:
        loader: Batches; of lists and tuples the first entry is the input.
        model: The model; afterwards in the mode that it was in.
        device: Where inputs are moved to.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        >>> mt.optim.swa_utils.update_bn([mt.randn(8, 2) for _ in range(3)], model)
        >>> model[1].num_batches_tracked
        tensor(3)
    """
    norms = [each for each in model.modules() if isinstance(each, _BatchNorm)]
    momenta = [each.momentum for each in norms]
    if not norms:
        return
    was_training = model.training
    with (
        _recording_nothing(_tensors(model)),
        _statistics_kept_on_error(norms),
        modes_kept_on_error(*model.modules()),
    ):
        for each in norms:
            each.reset_running_stats()
        model.train()
        try:
            for each in norms:
                each.momentum = None
            for batch in loader:
                inputs = batch[0] if isinstance(batch, list | tuple) else batch
                model(inputs if device is None else inputs.to(device))
        finally:
            for each, momentum in zip(norms, momenta, strict=True):
                plain_methods(each).__setattr__(each, "momentum", momentum)
        model.train(was_training)


class SWALR(LRScheduler):
    """Brings the learning rate of each group to a constant one, in a number of epochs.

    Args:
        optimizer: Whose learning rates to set.
        swa_lr: The constant rate, or one for each group.
        anneal_epochs: How many epochs that takes.
        anneal_strategy: ``"cos"`` or ``"linear"``: along half a cosine or a line.
        last_epoch: The number of the last epoch when training is resumed.

    Raises:
        ValueError: The strategy is neither, or the number of epochs is negative or no integer.

    Example:
        >>> optimizer = mt.optim.SGD([nn.Parameter(mt.zeros(2))], lr=1.0)
        >>> swa = mt.optim.swa_utils
        >>> schedule = swa.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     schedule.step()
        ...     print(schedule.get_last_lr())
        [0.75]
        [0.5]
        [0.5]
    """

    def __init__(
        self,
        optimizer: Any,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = per_group("swa_lr", optimizer, swa_lr)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        with undone_on_error(self, optimizer):
            for rate, group in zip(rates, optimizer.param_groups, strict=True):
                group["swa_lr"] = rate
            self._anneal_strategy = anneal_strategy
            self.anneal_epochs = anneal_epochs
            super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """How much of the way is done after a step."""
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """The learning rate of every group."""
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            final = group["swa_lr"]
            # The rate at the start, from the one that the last step has set.
            first = final if before == 1 else (group["lr"] - before * final) / (1 - before)
            rates.append(final * now + first * (1 - now))
        return rates
