# SPDX-License-Identifier: BSD-3-Clause
"""Which ``vmap`` this thread is in: what draws random numbers, and what makes tensors like others,
has to know.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["drawing", "for_each_sample", "levels", "refuse_random"]

_F = TypeVar("_F", bound=Callable[..., Any])


class _Levels(threading.local):
    def __init__(self) -> None:
        self.entered: list[Any] = []


_here = _Levels()


def levels() -> list[Any]:
    """The levels (:class:`modtree._batching.level.Level`) of this thread, the innermost last."""
    return _here.entered


def drawing(function: _F) -> _F:
    """A function that makes random tensors: inside of ``vmap`` its randomness decides how often it
    is called.
    """

    @functools.wraps(function)
    def draw(*args: Any, **kwargs: Any) -> Any:
        entered = _here.entered
        return entered[-1].draw(function, args, kwargs) if entered else function(*args, **kwargs)

    return draw  # type: ignore[return-value]


def for_each_sample(function: _F) -> _F:
    """A function that looks at values: inside of ``vmap`` it is called for each sample."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        entered = _here.entered
        return entered[-1].each(call, args, kwargs) if entered else function(*args, **kwargs)

    return call  # type: ignore[return-value]


def refuse_random() -> None:
    """Raises where random numbers are drawn inside of a ``vmap`` that does not say how."""
    if _here.entered and _here.entered[-1].randomness == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use "
            "the 'same' or 'different' randomness flags on vmap or perform the randomness "
            "operation out of vmap"
        )
