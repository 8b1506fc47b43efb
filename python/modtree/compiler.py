# SPDX-License-Identifier: BSD-3-Clause
"""What programs tell and ask the compiler: there is none, so functions stay what they are."""

from __future__ import annotations

from typing import Any

from modtree import _imports
from modtree.core.compiling import compile

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
]


def is_compiling() -> bool:
    """False."""
    return False


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """False."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself; without one, a decorator that gives it.

    Args:
        fn: The function or module.
        recursive: Accepted.
        reason: Accepted.
    """
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself."""
    return fn


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """None are there."""
    return []


def reset() -> None:
    """Nothing: nothing was compiled."""


def cudagraph_mark_step_begin() -> None:
    """Nothing: there are no graphs."""


_imports.answer_for_missing(__name__)
