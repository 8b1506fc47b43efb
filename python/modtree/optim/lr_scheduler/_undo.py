# SPDX-License-Identifier: BSD-3-Clause
"""Steps of schedules in which user code has a say, such as functions that compute a factor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from modtree.numpy.tensor.tensor import Tensor

__all__ = ["undone_on_error"]


def _with_inner(scheduler: Any) -> Iterator[Any]:
    yield scheduler
    for inner in getattr(scheduler, "_schedulers", ()):
        yield from _with_inner(inner)


# What schedules write: attributes of their own, entries of groups, an attribute of the optimizer.
_ATTRIBUTES = frozenset(
    """
    T_cur T_i T_mult _anneal_func_type _anneal_strategy _get_lr_called_within_step _is_initial
    _last_lr _milestones _scale_fn_custom _schedule_phases _schedulers _step_count anneal_epochs
    base_lrs base_momentums best cooldown cooldown_counter cycle_momentum default_min_lr end_factor
    eps eta_min factor gamma last_epoch lr_lambdas max_lrs max_momentums milestones min_lrs mode
    mode_worse num_bad_epochs optimizer patience power scale_mode start_factor step_ratio step_size
    threshold threshold_mode total_iters total_size total_steps
    """.split()
)
_GROUP_ENTRIES = frozenset(
    """
    base_momentum betas initial_lr lr max_lr max_momentum min_lr momentum swa_lr
    """.split()
)
_OF_OPTIMIZER = frozenset({"step"})


def _put_back(table: dict[str, Any], before: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if name in before:
            table[name] = before[name]
        else:
            table.pop(name, None)


@contextlib.contextmanager
def undone_on_error(scheduler: Any, optimizer: Any, loaded: Iterable[str] = ()) -> Iterator[None]:
    """When the block raises, the schedule, those it is made of, and the optimizer with its groups
    have in what schedules write what they had before it. What code of a subclass or a function did
    elsewhere stays.

    Args:
        scheduler: The schedule.
        optimizer: Its optimizer.
        loaded: Names of more attributes that the block sets.
    """
    attributes = _ATTRIBUTES.union(loaded)
    names = [(vars(each), attributes) for each in _with_inner(scheduler)]
    names.append((vars(optimizer), _OF_OPTIMIZER))
    names += [(group, _GROUP_ENTRIES) for group in optimizer.param_groups]
    kept = [(table, dict(table), own) for table, own in names]
    # Those are filled in place.
    rates = [rate for g in optimizer.param_groups if isinstance(rate := g.get("lr"), Tensor)]
    values = [(rate, rate.clone()) for rate in rates]
    try:
        yield
    except BaseException:
        for table, before, own in kept:
            _put_back(table, before, own)
        for rate, value in values:
            rate.copy_(value)
        raise
