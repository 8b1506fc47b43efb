# SPDX-License-Identifier: BSD-3-Clause
"""How long to wait for a server, and how often to ask again."""

from __future__ import annotations

import time
import warnings

from modtree.files.sources.errors import RemoteError, shown_name

__all__ = ["Attempts", "Pace", "Passing", "TooSlow", "say_copied"]

#: Seconds for one wait, and those after which so many bytes per second must have come.
_TIMEOUT = 30.0
_GRACE = 30.0
_LEAST_RATE = 1024
#: How often the same bytes are asked for, and the seconds before: doubled each time.
_ATTEMPTS = 4
_PAUSE = 0.25
_LONGEST_PAUSE = 10.0
#: Bytes after which a request was not in vain.
_PROGRESS = 1 << 16


class Passing(Exception):
    """What may be over when it is tried again.

    Args:
        reason: What went wrong.
        pause: The seconds that the server wants to pass before.
        received: The bytes that came nevertheless.
    """

    def __init__(self, reason: str, *, pause: float = 0.0, received: int = 0) -> None:
        super().__init__(reason)
        self.pause = min(pause, _LONGEST_PAUSE)
        self.received = received


class TooSlow(Exception):
    """A server that sends something now and then, without end."""


class Pace:
    """How fast bytes must come: a server that sends one now and then would never end."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _GRACE
        self._count = 0

    def advance(self, count: int) -> None:
        """Says that bytes came."""
        self._count += count

    def seconds(self) -> float:
        """How long to wait for the next ones.

        Raises:
            TooSlow: No longer.
        """
        left = self._until + self._count / _LEAST_RATE - time.monotonic()
        if left <= 0:
            raise TooSlow(f"the server is too slow: {self._count:,} bytes came in {_GRACE:.0f} s")
        return min(_TIMEOUT, left)


class Attempts:
    """How often a request for the same bytes failed.

    Args:
        name: What the error calls them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0

    def failed(self, error: Passing, progress: int = 0) -> None:
        """Waits until it is time to try again.

        Args:
            error: What went wrong.
            progress: The bytes that came before.

        Raises:
            RemoteError: It failed too often.
        """
        self._count = 1 if progress >= _PROGRESS else self._count + 1
        if self._count >= _ATTEMPTS:
            raise RemoteError(f"{error}; tried {_ATTEMPTS} times", self._name) from None
        time.sleep(max(_PAUSE * 2 ** (self._count - 1), error.pause))


def say_copied(name: str, reason: str, size: int | None) -> None:
    """Warns of a download, which takes longer and more room than reading in ranges."""
    length = "" if size is None else f" of {size:,} bytes"
    warnings.warn(
        f"{shown_name(name)}: {reason}, so that the whole file{length} is copied to a temporary "
        f"one first",
        stacklevel=2,
    )
