# SPDX-License-Identifier: BSD-3-Clause
"""The tensor function protocol, for those who write functions that take part in it, classes that
override them, and modes: ``from torch.overrides import ...``.

A class defines ``__torch_function__(cls, func, types, args=(), kwargs=None)`` and is asked whenever
one of its objects is an argument of a function, method, operator or attribute of tensors. ``func``
is what was called: ``modtree.add``, ``Tensor.add``, ``Tensor.shape.__get__``.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from modtree import _C
from modtree import linalg as _linalg
from modtree._C import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
    as_tuple,
)
from modtree.nn import functional as _functional
from modtree.nn import init as _init
from modtree.numpy.tensor.random import manual_seed
from modtree.numpy.tensor.settings import set_printoptions
from modtree.numpy.tensor.tensor import Tensor, is_tensor

__all__ = [
    "BaseTorchFunctionMode",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

has_torch_function_unary = _C._has_torch_function_unary
has_torch_function_variadic = _C._has_torch_function_variadic


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """True if one of the arguments, or a mode, takes part."""
    return _C._has_torch_function(as_tuple(relevant_args))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """The call ``public_api(*args, **kwargs)`` as modes and the classes of arguments define it.

    Args:
        public_api: The function that users called, which they find as ``func``.
        relevant_args: The arguments whose classes are asked.
        args: All positional arguments of the call.
        kwargs: Its keywords.

    Raises:
        TypeError: Nobody takes part, or all returned NotImplemented.
    """
    return _C._handle_torch_function(public_api, as_tuple(relevant_args), args, kwargs)


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function take part in the protocol::

        def dispatcher(a, b):
            return (a, b)

        @wrap_torch_function(dispatcher)
        def weighted(a, b):
            return a + 2 * b

    Args:
        dispatcher: Takes the arguments of the function and returns those whose classes are asked.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = as_tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """True if it is a tensor, or of a class with ``__torch_function__``."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def redispatch_function(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """``func(*args, **kwargs)`` without the classes of its arguments taking part."""
    return _disabled_torch_function_impl(func, types, args, kwargs or {})


# -- modes -----------------------------------------------------------------------------------------


class TorchFunctionMode:
    """A context in which ``__torch_function__`` of this object is asked for every function on
    tensors, before the classes of the arguments and for plain tensors too::

        class Count(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                print(resolve_name(func))
                return func(*args, **(kwargs or {}))

        with Count():
            modtree.ones(2) + 1

    While it runs, functions go to the mode around it.
    """

    inner: TorchFunctionMode

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} has to define __torch_function__(self, func, types, args=(), "
            "kwargs=None)"
        )

    def __enter__(self) -> Any:
        _C._push_on_torch_function_stack(self)
        return self

    def __exit__(self, *error: object) -> None:
        _C._pop_torch_function_stack()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """A new object of the class, for ``with``."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode_stack() -> list[Any]:
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def _get_current_function_mode() -> Any:
    depth = _C._len_torch_function_stack()
    return _C._get_function_stack_at(depth - 1) if depth else None


def _push_mode(mode: Any) -> None:
    _C._push_on_torch_function_stack(mode)


def _pop_mode() -> Any:
    return _C._pop_torch_function_stack()


@contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


# -- what can be overridden ------------------------------------------------------------------------

_CALLABLES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    _C.Op,
    _C.Overridable,
)
_ATTRIBUTES = (types.GetSetDescriptorType, property)
_OF_OBJECT = frozenset(vars(object)) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}


@functools.cache
def _overridable() -> tuple[dict[Any, list[Any]], dict[Any, str]]:
    """The functions of each namespace that take part, and the name of each."""
    functions: dict[Any, list[Any]] = {}
    names: dict[Any, str] = {}
    top = sys.modules["modtree"]  # which imports this module
    spaces: tuple[tuple[str, Any, Any], ...] = (
        ("modtree", top, top.__all__),
        ("modtree.nn.functional", _functional, vars(_functional)["__all__"]),
        ("modtree.nn.init", _init, _init.__all__),
        ("modtree.linalg", _linalg, _linalg.__all__),
        ("modtree.Tensor", Tensor, dir(Tensor)),
    )
    for title, space, members in spaces:
        for name in members:
            value = getattr(space, name)
            if isinstance(value, _ATTRIBUTES) and not name.startswith("__"):
                value, name = value.__get__, f"{name}.__get__"
            elif not isinstance(value, (_C.Op, _C.Overridable)) and not (
                space is Tensor and isinstance(value, _CALLABLES) and name not in _OF_OBJECT
            ):
                continue
            if value in get_ignored_functions():
                continue
            functions.setdefault(space, []).append(value)
            names.setdefault(value, f"{title}.{name}")
    return functions, names


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that take part in the protocol, by the namespace that has them."""
    return {space: list(functions) for space, functions in _overridable()[0].items()}


@functools.cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Functions that never ask anybody."""
    names = (
        *("__new__", "__init__", "__setstate__", "__iter__", "__dir__", "__hash__", "__copy__"),
        *("as_subclass", "_make_subclass", "_make_wrapper_subclass", "__torch_function__"),
    )
    return {
        is_tensor,
        set_printoptions,
        manual_seed,
        *(getattr(Tensor, name) for name in names),
    }


@functools.cache
def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Attributes that the default ``__torch_function__`` gives as they are, in their own class."""
    attributes: Any = Tensor
    return {attributes._base.__get__, attributes.grad.__get__}


def resolve_name(f: Any) -> str | None:
    """``"modtree.Tensor.add"`` for what ``__torch_function__`` got; None for other functions."""
    if isinstance(f, str):
        return f
    name = _overridable()[1].get(f)
    owner = getattr(f, "__self__", None)
    if name is None and isinstance(owner, _ATTRIBUTES):
        attribute = owner.fget if isinstance(owner, property) else owner
        return f"modtree.Tensor.{getattr(attribute, '__name__', '?')}.{f.__name__}"
    return name


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """True if it is a method of Tensor, or reads or writes one of its attributes."""
    methods = _overridable()[0].get(Tensor, [])
    return func in methods or getattr(func, "__name__", None) in ("__get__", "__set__")
