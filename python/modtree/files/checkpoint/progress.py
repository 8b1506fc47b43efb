# SPDX-License-Identifier: BSD-3-Clause
"""A bar that shows how far a long read or write is, where somebody watches."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator

_LARGE = 1_000_000_000
_LONG_SECONDS = 2.0
#: Before this share of a small file is done, its time cannot be told.
_START_SECONDS = 0.2


@contextlib.contextmanager
def progress_bar(total: int, what: str, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Gives a function to be called with the bytes that were done since the last call.

    Args:
        total: All bytes there are to do.
        what: The text in front of the bar.
        wanted: Whether to show it; None for: when stderr is a terminal and the work is long. In any
            case only where tqdm is installed.
    """
    if not may_show(wanted):
        yield _nothing
        return
    try:
        tqdm = importlib.import_module("tqdm").tqdm
    except ImportError:
        yield _nothing
        return

    def make() -> object:
        return tqdm(total=total, desc=what, unit="B", unit_scale=True, unit_divisor=1000)

    bar = _Bar(make, total)
    if wanted or total > _LARGE:
        bar.show()
    try:
        yield bar.advance
    finally:
        bar.close()


def _nothing(count: int) -> None:
    pass


def may_show(wanted: bool | None) -> bool:
    """False where no bar will come, however long the work takes."""
    if wanted is not None:
        return wanted
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # None, or closed
        return False


class _Bar:
    """A bar that comes up as soon as the work turns out to take long."""

    def __init__(self, make: Callable[[], object], total: int) -> None:
        self._make = make
        self._total = total
        self._done = 0
        self._shown: object = None
        self._start = time.monotonic()

    def show(self) -> None:
        self._shown = self._make()
        self._shown.update(self._done)  # type: ignore[attr-defined]

    def advance(self, count: int) -> None:
        self._done += count
        if self._shown is not None:
            self._shown.update(count)  # type: ignore[attr-defined]
            return
        passed = time.monotonic() - self._start
        if passed > _START_SECONDS and passed * self._total > _LONG_SECONDS * self._done:
            self.show()

    def close(self) -> None:
        if self._shown is not None:
            self._shown.close()  # type: ignore[attr-defined]
