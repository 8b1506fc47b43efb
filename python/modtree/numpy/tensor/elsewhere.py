# SPDX-License-Identifier: BSD-3-Clause
"""Functions on tensors of other libraries: each runs in the library that its tensors are from.

Native code finds such tensors where it looks for those that take a call over
(``csrc/numpy/tensor/foreign_call.cpp``), and asks here for the library's function. A call with
modtree's own tensors does not come here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from modtree import _C
from modtree._C import TensorBase
from modtree.core.families import family_of, function_for
from modtree.core.family import TensorFamily
from modtree.core.running import path_of_call
from modtree.core.type_names import name_of_type


def _function_elsewhere(
    name: str,
    family: TensorFamily,
    function: Any = None,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """The function of a library that a call is for.

    Args:
        name: The function's name there.
        family: That of the first tensor that is not modtree's.
        function: The function that was called, where there are tensors of several libraries.
        args: Of that call.
        kwargs: Of that call.

    Returns:
        The library's function, or NotImplemented where the function that was called is to say
        itself what is wrong.

    Raises:
        NotImplementedError: The library's family does not have such a function.
        TypeError: There are tensors of several libraries.
    """
    if function is not None:
        first = next((v for _, v in _items(enumerate(args)) if family_of(v) is not None), None)
        if isinstance(first, TensorBase) and not function.__module__.startswith("modtree.nn."):
            return NotImplemented
        _find_family(function, name, args, kwargs or {}, sys._getframe(1))
    try:
        return function_for(family, name)
    except NotImplementedError as error:
        raise NotImplementedError(f"{path_of_call(sys._getframe(1))}{error}") from None


def run_elsewhere(function: Callable[..., Any], *args: Any) -> Any:
    """The result of the library's function of the same name, for functions of Python that are
    called with its tensors.

    Raises:
        NotImplementedError: The library's family does not have such a function.
        TypeError: There are tensors of several libraries, or none.
    """
    name, frame = function.__name__, sys._getframe(1)
    family = _find_family(function, name, args, {}, frame)
    if family is None:
        raise TypeError(f"{path_of_call(frame)}{name}(): expected tensors, got none")
    return _function_elsewhere(name, family)(*args)


def _named(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """The arguments of a call, by the names of the parameters."""
    try:
        given = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = {f"argument {i}": value for i, value in enumerate(args, 1)} | kwargs
    return _items(given.items())


def _find_family(
    function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
) -> TensorFamily | None:
    """The one family, not modtree's, of all tensors among the arguments; None without any.

    Raises:
        TypeError: There are tensors of several libraries.
    """
    found: TensorFamily | None = None
    place = own = ""
    for key, value in _named(function, args, kwargs):
        if isinstance(value, TensorBase):
            own = own or key
            continue
        family = family_of(value)
        if family is None or family is found:
            continue
        if found is not None:
            raise TypeError(
                f"{path_of_call(frame)}{name}(): expected tensors of one library, got "
                f"{place} of {found.name} and {key} of {family.name}: "
                "modtree.to_family(model, name) converts a model"
            )
        found, place = family, f"{key} ({name_of_type(value)})"
    if found is not None and own:
        raise TypeError(
            f"{path_of_call(frame)}{name}(): expected tensors of one library, got {place} of "
            f"{found.name} and {own} of modtree: {_advice(found)}"
        )
    return found


def _advice(family: TensorFamily) -> str:
    """How tensors of modtree and of another family come together."""
    text = f"modtree.to_family(model, {family.name!r}) converts a model"
    if family.name == "torch":
        text += ", and modtree.from_torch(tensor) a tensor"
    return text


def _items(arguments: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """The arguments, and what is in those that are lists or tuples."""
    for key, value in arguments:
        if isinstance(value, (list, tuple)):
            yield from ((key, item) for item in value)
        else:
            yield key, value


_C._install(function_elsewhere=_function_elsewhere)
