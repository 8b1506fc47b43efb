# SPDX-License-Identifier: BSD-3-Clause
"""Timing of operations, which is always off: programs that are marked for it run as they are."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

__all__ = ["EventList", "emit_nvtx", "profile", "record_function"]


class record_function(contextlib.ContextDecorator):  # noqa: N801
    """A context, or decorator, that names a part of the program and records nothing.

    Args:
        name: The name.
        args: Text beside it.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class EventList(list[Any]):
    """What was recorded: nothing."""

    def table(self, *args: Any, **kwargs: Any) -> str:
        """Says so."""
        return "modtree records no times of operations: see Python's cProfile"

    def total_average(self) -> EventList:
        """The list itself."""
        return self


class profile(contextlib.ContextDecorator):  # noqa: N801
    """A context that records nothing; it warns when it is asked to.

    Args:
        enabled: False keeps it silent.
        kwargs: The other options, which change nothing.
    """

    def __init__(self, enabled: bool = True, **kwargs: Any) -> None:
        if enabled:
            warnings.warn(
                "the profiler is not available here and records nothing: use Python's cProfile",
                stacklevel=2,
            )

    def __enter__(self) -> profile:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def key_averages(self, *args: Any, **kwargs: Any) -> EventList:
        """An empty list."""
        return EventList()

    def total_average(self) -> EventList:
        """An empty list."""
        return EventList()

    @property
    def function_events(self) -> EventList:
        """An empty list."""
        return EventList()


class emit_nvtx(contextlib.ContextDecorator):  # noqa: N801
    """A context that changes nothing: there is no CUDA.

    Args:
        enabled: Accepted.
        record_shapes: Accepted.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> emit_nvtx:
        return self

    def __exit__(self, *_: Any) -> None:
        return None
