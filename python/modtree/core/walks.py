# SPDX-License-Identifier: BSD-3-Clause
"""What a native walk (``_C.Walk``) leaves to a generator of CPython's own."""

from __future__ import annotations

from collections.abc import Generator
from types import FunctionType
from typing import Any

from modtree import _C


def _walk() -> Generator[None, None, None]:
    yield


def twin(name: str, started: bool, finished: bool) -> Generator[Any, Any, Any]:
    """A generator that looks as a walk does from outside: its name, and whether it has started and
    ended.

    What is thrown into it is checked and raised as into any generator, in every version of Python;
    its frame and its code show no more than that.
    """
    code = _walk.__code__.replace(co_name=name)
    generator: Any = FunctionType(code, {}, name)()
    generator.__qualname__ = f"Module.{name}"
    if started:
        next(generator)
    if finished:
        generator.close()
    return generator


_C._install(walk_twin=twin)
