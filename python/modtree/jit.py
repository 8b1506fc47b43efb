# SPDX-License-Identifier: BSD-3-Clause
"""Scripts and traces: there are none. What marks functions for them leaves the functions alone."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from modtree import _imports
from modtree.core.module import Module

__all__ = [
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "export",
    "freeze",
    "ignore",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "trace",
    "trace_module",
    "unused",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class ScriptModule(Module):
    """A scripted module, for ``isinstance``: no module is one."""


class ScriptFunction:
    """A scripted function, for ``isinstance``: no function is one."""


def is_scripting() -> bool:
    """False."""
    return False


def is_tracing() -> bool:
    """False."""
    return False


_warned = False


def script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """The function, class or module itself, with a warning the first time: nothing is compiled.

    Args:
        obj: The function, class or module.
        optimize: Accepted.
        _frames_up: Accepted.
        _rcb: Accepted.
        example_inputs: Accepted.
    """
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "modtree.jit.script gives the function or module itself: there is no compiler",
            stacklevel=2,
        )
    return obj


def script_if_tracing(fn: _F) -> _F:
    """The function itself: nothing is traced."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; with an argument a decorator that gives it."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn: _F) -> _F:
    """The function itself."""
    return fn


def export(fn: _F) -> _F:
    """The function itself."""
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:  # noqa: A001
    """Python's, for types without parameters."""
    return builtins.isinstance(obj, target_type)


def freeze(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
    return mod


def optimize_for_inference(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
    return mod


def _refuse(name: str, instead: str) -> NoReturn:
    raise RuntimeError(f"modtree.jit.{name}: there is no compiled form of a model; {instead}")


def trace(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError: a trace would be used for what it can do without Python."""
    _refuse("trace", "call the model itself")


def trace_module(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("trace_module", "call the model itself")


def save(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("save", "modtree.save(model.state_dict(), path) writes its state")


def load(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises RuntimeError."""
    _refuse("load", "modtree.load(path) reads state dicts, those of torch too")


_imports.answer_for_missing(__name__)
