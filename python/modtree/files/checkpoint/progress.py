# SPDX-License-Identifier: BSD-3-Clause
"""How far long work is, on stderr: a bar by tqdm or a plain line, or the time it takes so far."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_LARGE = 1_000_000_000
_LONG_SECONDS = 2.0
#: Before this share of a small file is done, its time cannot be told.
_START_SECONDS = 0.2
#: Between two changes of a plain line.
_STEP_SECONDS = 0.2

#: What functions do that are not told: the wish of a command, None for whether a terminal watches.
_wish: bool | None = None
#: How many bars are shown; a line with the time waits meanwhile.
_shown_bars = 0


@contextlib.contextmanager
def shows_progress(wanted: bool | None) -> Iterator[None]:
    """Decides for the functions that are not told themselves, as a command line does."""
    global _wish
    before, _wish = _wish, wanted
    try:
        yield
    finally:
        _wish = before


@contextlib.contextmanager
def progress_bar(total: int, what: str, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Gives a function to be called with the bytes that were done since the last call.

    Args:
        total: All bytes there are to do.
        what: The text in front of the bar.
        wanted: Whether to show it; None for: when stderr is a terminal and the work is long.
    """
    if not may_show(wanted):
        yield _nothing
        return

    bar = _Bar(total, what)
    if wanted or _wish or total > _LARGE:
        bar.show()
    try:
        yield bar.advance
    finally:
        bar.close()


def _nothing(count: int) -> None:
    pass


def may_show(wanted: bool | None = None) -> bool:
    """False where nothing will be shown, however long the work takes."""
    wanted = _wish if wanted is None else wanted
    if wanted is not None:
        return wanted
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # None, or closed
        return False


class _Bar:
    """A bar that comes up as soon as the work turns out to take long."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._done = 0
        self._shown: Any = None
        self._start = time.monotonic()

    def show(self) -> None:
        global _shown_bars
        try:
            tqdm = importlib.import_module("tqdm").tqdm
        except ImportError:
            self._shown = _PlainBar(self._total, self._what)
        else:
            self._shown = tqdm(
                total=self._total, desc=self._what, unit="B", unit_scale=True, unit_divisor=1000
            )
        _shown_bars += 1
        self._shown.update(self._done)

    def advance(self, count: int) -> None:
        self._done += count
        if self._shown is not None:
            self._shown.update(count)
            return
        passed = time.monotonic() - self._start
        if passed > _START_SECONDS and passed * self._total > _LONG_SECONDS * self._done:
            self.show()

    def close(self) -> None:
        global _shown_bars
        if self._shown is not None:
            self._shown.close()
            _shown_bars -= 1


class _PlainBar:
    """What tqdm shows, as one line of text: ``Writing a.pt: 45%, 2.3 of 5.1 GB, 12 s left``."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._done = 0
        self._start = self._written = time.monotonic()

    def update(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._written >= _STEP_SECONDS:
            self._written = now
            _overwrite(self._text(now))

    def close(self) -> None:
        _overwrite(self._text(time.monotonic()), end="\n")

    def _text(self, now: float) -> str:
        done, total = self._done, max(self._total, 1)
        left = (now - self._start) * (total - done) / done if done else 0
        rest = f", {left:.0f} s left" if 0 < done < total else ""
        unit, scale = ("GB", 1e9) if total >= 1e9 else ("MB", 1e6)
        sizes = f"{done / scale:.1f} of {total / scale:.1f} {unit}"
        return f"{self._what}: {done / total:.0%}, {sizes}{rest}"


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Shows how long something takes whose end cannot be foretold, from two seconds on."""
    if not may_show():
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(target=_tell_time, args=(what, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _tell_time(what: str, ended: threading.Event) -> None:
    start = time.monotonic()
    is_shown = False
    wait = _LONG_SECONDS
    while not ended.wait(wait):
        wait = _STEP_SECONDS
        if not _shown_bars:
            is_shown = True
            _overwrite(f"{what}: {time.monotonic() - start:.0f} s")
    if is_shown:
        _overwrite("")


def _overwrite(text: str, end: str = "") -> None:
    """Writes a line over the last one; a terminal has room for it."""
    if sys.stderr is not None:
        columns = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{text[:columns]:<{columns}}{end or chr(13)}")
        sys.stderr.flush()
