# SPDX-License-Identifier: BSD-3-Clause
"""The profiler of steps of a program, which is always off."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from modtree import _imports
from modtree.autograd import profiler as _profiler
from modtree.autograd.profiler import record_function

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """What could be recorded."""

    CPU = 0
    CUDA = 1
    XPU = 2
    MTIA = 3


class ProfilerAction(enum.Enum):
    """What a schedule says for a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class profile(_profiler.profile):  # noqa: N801
    """A context that records nothing, with a warning; ``on_trace_ready`` is not called.

    Args:
        activities: Accepted.
        schedule: Accepted.
        on_trace_ready: Accepted.
        kwargs: The other options, which change nothing.
    """

    def __init__(
        self,
        *,
        activities: Any = None,
        schedule: Any = None,
        on_trace_ready: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.step_num = 0

    def start(self) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""

    def step(self) -> None:
        """Counts a step."""
        self.step_num += 1


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, **kwargs: Any
) -> Callable[[int], ProfilerAction]:
    """A function that gives NONE for each step.

    Args:
        wait: Accepted, like all that follow.
        warmup: Accepted.
        active: Accepted.
        repeat: Accepted.
        skip_first: Accepted.
        kwargs: Accepted.
    """
    return lambda step: ProfilerAction.NONE


def supported_activities() -> set[ProfilerActivity]:
    """None."""
    return set()


def kineto_available() -> bool:
    """False."""
    return False


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A function that writes nothing.

    Args:
        dir_name: Accepted.
        worker_name: Accepted.
        use_gzip: Accepted.
    """
    return lambda profile: None


_imports.answer_for_missing(__name__)
