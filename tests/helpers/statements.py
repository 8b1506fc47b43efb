# SPDX-License-Identifier: BSD-3-Clause
"""Statements of docs/behaviour.md as programs: each is observed on torch and on modtree.

A file has a :class:`Statements`, decorates one function for each statement, which takes the
implementation and returns what it saw, and compares all of them in one test.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from helpers.implementations import implementation
from helpers.support import as_named_here


class Statements:
    """The statements of one file."""

    def __init__(self) -> None:
        self.programs: dict[str, Callable[[Any], Any]] = {}
        self.better: set[str] = set()

    def __call__(self, number: str, better: bool = False) -> Callable[[Any], Any]:
        """Decorates the program of a statement; `better`: modtree differs on purpose, and
        docs/compat.md says how.
        """

        def add(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
            name = number
            while name in self.programs:
                name += "'"
            self.programs[name] = program
            if better:
                self.better.add(name)
            return program

        return add

    def compare(self, number: str, kind: str) -> None:
        ours, theirs = self.seen(number, kind), self.seen(number, "torch")
        if number in self.better:
            assert ours != theirs
        else:
            assert ours == theirs

    @functools.cache  # noqa: B019  # lives as long as the file
    def seen(self, number: str, kind: str) -> Any:
        with clean(implementation(kind)) as impl:
            return self.programs[number](impl)


@contextlib.contextmanager
def clean(impl: Any) -> Iterator[Any]:
    """Without warnings, and without what is left of global hooks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield impl
        finally:
            for key, value in vars(impl.module).items():
                if key.startswith("_global_") and isinstance(value, dict):
                    value.clear()
            impl.module._global_is_full_backward_hook = None


def said(call: Callable[[], Any], *phrases: str) -> Any:
    """How a call ended: the type of its error and which phrases that names, or "returned"."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        return type(error).__name__, [as_named_here(phrase) in text for phrase in phrases]
    return "returned"


def warned(call: Callable[[], Any], *phrases: str) -> Any:
    """The categories of the warnings of a call, and which phrases they name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    text = "\n".join(str(w.message) for w in caught)
    return [w.category.__name__ for w in caught], [phrase in text for phrase in phrases]


# -- modules ---------------------------------------------------------------------------------------


def parameter(t: Any, *shape: int) -> Any:
    """A parameter of ones."""
    return t.nn.Parameter(t.lib.ones(*shape or (1,)))


def module(t: Any, **parts: Any) -> Any:
    """A module with these attributes."""
    m = t.nn.Module()
    for name, value in parts.items():
        setattr(m, name, value)
    return m


def tree(t: Any) -> Any:
    """Shared modules, shared parameters, empty places, buffers."""
    shared = module(t, w=parameter(t))
    m = module(t, a=module(t, s=shared, own=parameter(t)), b=shared, w=shared.w)
    m.none = t.nn.Module()
    m.none = None
    m.register_buffer("buf", t.lib.ones(1))
    m.a.register_buffer("buf", m.buf)
    return m


class Plain:
    """What classes of all implementations share: a forward that returns its input."""

    def forward(self, x, **kwargs):
        return x


def identity(t: Any) -> Any:
    """A module that returns its input."""
    return type("Identity", (Plain, t.nn.Module), {})()
