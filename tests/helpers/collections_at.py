# SPDX-License-Identifier: BSD-3-Clause
"""Runs user code at a chosen collection: before CPython 3.12 any allocation of a container may be
one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any


class AtCollection:
    """While it is entered, nearly every allocation of a container is a collection, and ``action()``
    runs once, at number ``number``.
    """

    def __init__(self, number: int, action: Callable[[], Any]) -> None:
        self.left = number
        self.action = action
        self.ran = False

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            if self.left == 0:
                self.ran = True
                self.action()
            self.left -= 1

    def __enter__(self) -> AtCollection:
        self.thresholds = gc.get_threshold()
        gc.callbacks.append(self)
        gc.set_threshold(1, 1_000_000, 1_000_000)
        return self

    def __exit__(self, *error: object) -> None:
        gc.set_threshold(*self.thresholds)
        gc.callbacks.remove(self)


def at_every_collection(
    prepare: Callable[[], tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any] | None]],
) -> int:
    """Uses what ``prepare()`` gives (a use, an action, a check or None) with the action at each
    collection of the use in turn.

    Errors of the use are fine; the check runs after it. Returns how often the action ran: at least
    once for a use that allocates a container, before CPython 3.12.
    """
    ran = 0
    for number in range(200):
        reached = False
        # Every second allocation is a collection. Sets always allocate, for lists CPython may have
        # memory left; and nothing here may be freed before the use, which would count backwards.
        for padding in range(3):
            use, action, check = prepare()
            with AtCollection(number, action) as scope:
                kept = []
                for _ in range(padding):
                    kept.append(set())
                try:
                    use()
                except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
                    pass
                del kept
            if check is not None:
                check()
            reached |= scope.ran
            ran += scope.ran
        if not reached:
            return ran
    raise AssertionError("the use does not come to its end")
