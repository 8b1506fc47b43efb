# SPDX-License-Identifier: BSD-3-Clause
"""Steps of schedules in which user code has a say, such as functions that compute a factor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from modtree._tensor.tensor import Tensor

__all__ = ["undone_on_error"]


def _with_inner(scheduler: Any) -> Iterator[Any]:
    yield scheduler
    for inner in getattr(scheduler, "_schedulers", ()):
        yield from _with_inner(inner)


@contextlib.contextmanager
def undone_on_error(scheduler: Any, optimizer: Any) -> Iterator[None]:
    """When the block raises, the schedule, those it is made of, and the optimizer with its groups
    are what they were before it.
    """
    owners = [*_with_inner(scheduler), optimizer]
    tables = [vars(owner) for owner in owners] + [*optimizer.param_groups]
    kept = [(table, dict(table)) for table in tables]
    # Those are filled in place.
    rates = [rate for g in optimizer.param_groups if isinstance(rate := g.get("lr"), Tensor)]
    values = [(rate, rate.clone()) for rate in rates]
    try:
        yield
    except BaseException:
        for table, contents in kept:
            table.clear()
            table.update(contents)
        for rate, value in values:
            rate.copy_(value)
        raise
