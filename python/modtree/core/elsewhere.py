# SPDX-License-Identifier: BSD-3-Clause
"""Functions on tensors of other libraries: each runs in the library that its tensors are from.

A function begins with a look at its first argument, which costs modtree's own tensors next to
nothing:

    if not isinstance(input, Tensor) and (found := elsewhere()) is not None:
        return found

The most frequent ones, whose operation refuses other tensors before anything else happens, do so
in the handler of its TypeError, which costs nothing at all.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from modtree._C import ModuleBase, TensorBase
from modtree._type_names import name_of_type
from modtree.core.families import family_of, function_for
from modtree.core.family import TensorFamily

__all__ = ["elsewhere", "modules_of_call", "path_of_call"]


def elsewhere(name: str | None = None) -> Any:
    """What the calling function returns for tensors of another library; None where there are none
    among its arguments.

    The library's function of that name gets the arguments by their names.

    Args:
        name: The function's public name, where its code has another.

    Raises:
        NotImplementedError: The library's family does not have such a function.
        TypeError: There are tensors of several libraries.
    """
    frame = sys._getframe(1)
    name = name or frame.f_code.co_name
    positional, keywords = _arguments_of(frame)
    family = _family_of_all({**positional, **keywords}, name, frame)
    if family is None:
        return None
    try:
        function = function_for(family, name)
    except NotImplementedError as error:
        raise NotImplementedError(f"{path_of_call(frame)}{error}") from None
    more = positional.pop("*", ())
    handled = sys.exc_info()[1]
    try:
        if more:
            return function(*positional.values(), *more, **keywords)
        return function(**_given(frame, positional), **keywords)
    except Exception as error:
        _forget(error, handled)
        raise


def _given(frame: FrameType, positional: dict[str, Any]) -> dict[str, Any]:
    if not frame.f_globals["__name__"].startswith("modtree.nn."):
        # Functions of tensors differ in arguments that were not given, which are None. Those of
        # nn.functional have arguments that must be given, and may be None.
        return {key: value for key, value in positional.items() if value is not None}
    return positional


def _forget(error: BaseException, handled: BaseException | None) -> None:
    """An error of the library's function has nothing to do with the one that led here."""
    last: BaseException | None = error
    while handled is not None and last is not None:
        if last.__context__ is handled:
            last.__context__ = None
        last = last.__context__


def _arguments_of(frame: FrameType) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the function of a frame got: by position, those beyond its parameters as ``"*"``, and by
    keyword alone.
    """
    code, values = frame.f_code, frame.f_locals
    count, end = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    positional = {key: values[key] for key in code.co_varnames[:count]}
    keywords = {key: values[key] for key in code.co_varnames[count:end]}
    keywords = {key: value for key, value in keywords.items() if value is not None}
    if code.co_flags & inspect.CO_VARARGS:
        positional["*"] = values[code.co_varnames[end]]
        end += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keywords |= values[code.co_varnames[end]]
    return positional, keywords


def _family_of_all(
    arguments: dict[str, Any], function: str, frame: FrameType
) -> TensorFamily | None:
    found: TensorFamily | None = None
    kind: type | None = None
    place = own = ""
    for key, value in _items(arguments):
        cls = type(value)
        if cls is kind or value is None:
            continue
        if isinstance(value, TensorBase):
            own = own or key
            continue
        family = family_of(value)
        if family is None or family is found:
            continue
        if found is not None:
            raise TypeError(
                f"{path_of_call(frame)}{function}(): expected tensors of one library, got "
                f"{place} of {found.name} and {key} of {family.name}: "
                "modtree.to_family(model, name) converts a model"
            )
        found, kind, place = family, cls, f"{key} ({name_of_type(value)})"
    if found is not None and own:
        raise TypeError(
            f"{path_of_call(frame)}{function}(): expected tensors of one library, got {place} of "
            f"{found.name} and {own} of modtree: {_advice(found)}"
        )
    return found


def _advice(family: TensorFamily) -> str:
    """How tensors of modtree and of another family come together."""
    text = f"modtree.to_family(model, {family.name!r}) converts a model"
    if family.name == "torch":
        text += ", and modtree.from_torch(tensor) a tensor"
    return text


def _items(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments, and what is in those that are lists or tuples."""
    for key, value in arguments.items():
        if isinstance(value, (list, tuple)):
            yield from ((key, item) for item in value)
        else:
            yield key, value


def path_of_call(frame: FrameType | None) -> str:
    """``"encoder.0: "``: the path of the module in whose ``forward`` a frame runs, from the
    outermost module that is called; nothing outside of modules.
    """
    called = list(modules_of_call(frame))
    if not called:
        return ""
    inner, root = called[0], called[-1]
    paths: Iterable[tuple[str, Any]] = root.named_modules()
    path = next((path for path, module in paths if module is inner), "")
    return f"{path or type(inner).__name__}: "


def modules_of_call(frame: FrameType | None) -> Iterator[Any]:
    """The modules whose methods are running, from the innermost on."""
    while frame is not None:
        code = frame.f_code
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(owner, ModuleBase):
            yield owner
        frame = frame.f_back
