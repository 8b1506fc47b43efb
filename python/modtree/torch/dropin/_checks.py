# SPDX-License-Identifier: BSD-3-Clause
"""What modtree relies on in torch's file of Module, checked before anything is changed."""

from __future__ import annotations

import inspect
import sys
import warnings
from types import FunctionType, ModuleType
from typing import Any

from modtree.core.module import Module
from modtree.torch.facts import METHODS, NAMES, NAMES_OF_SOME, parameters_of

#: The version of torch that the drop-in was built and tested with, and those that are known.
REFERENCE_VERSION = "2.13"
KNOWN_VERSIONS = "2.4 to 2.15"

#: Methods in whose place native code must run: CPython's slots, and what these lead to.
_MUST_BE_NATIVE = {
    "__init__",
    "__getattr__",
    "__setattr__",
    "__delattr__",
    "__getstate__",
    "__setstate__",
    "_call_impl",
    "_wrapped_call_impl",
    "_slow_forward",
    "_load_from_state_dict",
    "_save_to_state_dict",
}


def check(file: ModuleType) -> set[str]:
    """The names of the methods that are left to torch: this torch has them with parameters that
    modtree does not know. A warning says so.

    Raises:
        ImportError: torch's file is not as modtree knows it.
    """
    differences = list(_differences(file))
    if differences:
        raise ImportError(
            f"modtree.dropin does not know this torch ({_version()}; made for {KNOWN_VERSIONS}): "
            f"{'; '.join(differences[:5])}. Nothing was changed: run the program without the "
            "drop-in (`modtree run --off`), or use a version of modtree for this torch"
        )
    unknown = dict(_unknown_methods(file))
    tables = _unknown_tables(file)
    if unknown or tables:
        warnings.warn(
            f"modtree.dropin does not know everything in this torch ({_version()}; made for "
            f"{KNOWN_VERSIONS}): {'; '.join([*unknown.values(), *tables])}. torch's own code runs "
            "for it; look for a newer version of modtree",
            stacklevel=2,
        )
    return set(unknown)


def _version() -> str:
    for name in ("torch", "torch.version"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            return str(version)
    return "unknown"


def _differences(file: ModuleType):
    names = vars(file)
    for name in NAMES:
        if name not in names:
            yield f"{file.__name__} has no {name}"
    module = names.get("Module")
    if not isinstance(module, type) or module.__mro__ != (module, object):
        yield f"{file.__name__}.Module is no class of its own"
        return
    for name, known in METHODS.items():
        function = vars(module).get(name)
        if not inspect.isfunction(function):
            yield f"Module has no method {name}"
            continue
        found = parameters_of(function.__code__)
        if found not in known and (name in _MUST_BE_NATIVE or not _takes_more(function, known[0])):
            yield f"Module.{name} takes ({found}), not ({known[0]})"
    if vars(module).get("__call__") is not vars(module).get("_wrapped_call_impl"):
        yield "Module.__call__ is not Module._wrapped_call_impl"
    state, native_state = tuple(vars(module())), tuple(vars(Module()))
    if state != native_state:
        extra = sorted(set(state) ^ set(native_state)) or ["in another order"]
        yield f"a new Module has other internal attributes ({', '.join(extra)})"
    for name in _tables(file):
        users = sorted(m for m in _MUST_BE_NATIVE if _mentions(vars(module).get(m), name))
        if users:
            yield f"Module.{users[0]} asks the table {name}"


def _takes_more(function: FunctionType, known: str) -> bool:
    """True if the function can be called as the known one is: what else it takes is optional."""
    by_keyword = "*" in known
    at_place = [] if by_keyword else known.split()
    parameters = inspect.signature(function).parameters
    if list(parameters)[: len(at_place)] != at_place:
        return False
    for name, parameter in parameters.items():
        if name in at_place and parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            return False
        if name not in known.split() and parameter.kind is parameter.POSITIONAL_ONLY:
            return False
        if name not in known.replace("*", "").split() and parameter.default is parameter.empty:
            return False
    return set(known.replace("*", "").split()) <= set(parameters)


def _unknown_methods(file: ModuleType):
    for name, known in METHODS.items():
        found = parameters_of(vars(file.Module)[name].__code__)
        if found not in known:
            yield name, f"Module.{name} takes ({found}), not ({known[0]})"


def _tables(file: ModuleType) -> list[str]:
    """Process-wide tables of hooks that modtree does not know."""
    return [
        name
        for name in vars(file)
        if name.startswith("_global_") and name not in NAMES and name not in NAMES_OF_SOME
    ]


def _unknown_tables(file: ModuleType) -> list[str]:
    return [f"{file.__name__} has a table {name}" for name in _tables(file)]


def _mentions(function: Any, name: str) -> bool:
    """True if the function, or one inside of it, uses the global name."""
    code = getattr(function, "__code__", function)
    inner = [c for c in getattr(code, "co_consts", ()) if inspect.iscode(c)]
    return name in getattr(code, "co_names", ()) or any(_mentions(c, name) for c in inner)
