# SPDX-License-Identifier: BSD-3-Clause
"""``flags`` and ``set_flags`` of a module whose switches are its global names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["of_module"]


def of_module(
    namespace: dict[str, Any], *names: str
) -> tuple[Callable[..., AbstractContextManager[None]], Callable[..., None]]:
    """The functions ``flags`` and ``set_flags`` of a module.

    Args:
        namespace: The globals of the module.
        names: Its switches.
    """

    def set_flags(**switches: Any) -> None:
        """Sets switches, by their names."""
        unknown = set(switches) - set(names)
        if unknown:
            raise TypeError(
                f"{namespace['__name__']} has no switch {min(unknown)!r}: {sorted(names)}"
            )
        namespace.update(switches)

    @contextlib.contextmanager
    def flags(**switches: Any) -> Iterator[None]:
        """A context in which switches have other values."""
        before = {name: namespace[name] for name in names}
        set_flags(**switches)
        try:
            yield
        finally:
            namespace.update(before)

    for function in (flags, set_flags):
        function.__module__ = namespace["__name__"]
        function.__qualname__ = function.__name__
    return flags, set_flags
