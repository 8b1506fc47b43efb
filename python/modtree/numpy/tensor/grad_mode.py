# SPDX-License-Identifier: BSD-3-Clause
"""Switching the recording of operations off and on, for the current thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from modtree._C import (
    _set_grad_enabled,
    _set_inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
)
from modtree.numpy.tensor.context_decorator import decorate

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound=Callable[..., Any])


class _GradMode:
    """A context manager that is also a decorator; may be entered more than once."""

    __slots__ = ("_saved",)
    _mode: bool
    _saved: list[bool]

    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]

    @overload
    def __new__(cls, function: None = None) -> Self: ...

    def __new__(cls, function: Any = None) -> Any:
        self = object.__new__(cls)
        self._saved = []
        # `@no_grad` without parentheses works as `@no_grad()`.
        return self if function is None else self(function)

    def __enter__(self) -> None:
        self._saved.append(_set_grad_enabled(self._mode))

    def __exit__(self, *error: object) -> None:
        _set_grad_enabled(self._saved.pop())

    def clone(self) -> _GradMode:
        """Another context of the same kind."""
        return type(self)()

    def __call__(self, function: F) -> F:
        return decorate(self.clone, function)


class no_grad(_GradMode):
    """Nothing is recorded inside: ``with no_grad(): ...`` or ``@no_grad()``."""

    __slots__ = ()
    _mode = False


class enable_grad(_GradMode):
    """Operations are recorded inside, also within :class:`no_grad`."""

    __slots__ = ()
    _mode = True


class set_grad_enabled:
    """Sets the mode at once; as a context manager it puts the old mode back, as a decorator it
    applies during calls.
    """

    __slots__ = ("mode", "_previous")

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._previous = _set_grad_enabled(self.mode)

    def __enter__(self) -> None:
        _set_grad_enabled(self.mode)

    def __exit__(self, *error: object) -> None:
        _set_grad_enabled(self._previous)

    def __call__(self, function: F) -> F:
        _set_grad_enabled(self._previous)
        return decorate(lambda: set_grad_enabled(self.mode), function)


class inference_mode:
    """Like :class:`no_grad`; ``inference_mode(False)`` changes nothing."""

    __slots__ = ("mode", "_saved")
    mode: bool
    _saved: list[tuple[bool, bool]]

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...

    @overload
    def __new__(cls, mode: F) -> F: ...  # type: ignore[misc]

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        self._saved = []
        if isinstance(mode, bool):
            self.mode = mode
            return self
        self.mode = True
        return self(mode)

    def __enter__(self) -> None:
        saved = _set_inference_mode(self.mode), is_grad_enabled()
        _set_grad_enabled(saved[1] and not self.mode)
        self._saved.append(saved)

    def __exit__(self, *error: object) -> None:
        inference, grad = self._saved.pop()
        _set_inference_mode(inference)
        _set_grad_enabled(grad)

    def __call__(self, function: F) -> F:
        return decorate(lambda: inference_mode(self.mode), function)
