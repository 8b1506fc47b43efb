# SPDX-License-Identifier: BSD-3-Clause
"""Functions that classes with ``__torch_function__`` and function modes may take over."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from modtree._C import Overridable
from modtree.numpy.tensor import elsewhere as _installs_what_finds_functions  # noqa: F401

_MARK = "_overridable"
# Makers whose first argument is a tensor, which says in which library they make another.
_OF_TENSORS = {
    "bernoulli",
    "empty_like",
    "full_like",
    "multinomial",
    "ones_like",
    "poisson",
    "rand_like",
    "randint_like",
    "randn_like",
    "zeros_like",
}
_MAKERS = {
    f"modtree.numpy.tensor.{module}"
    for module in ("creation", "from_data", "random_creation", "ranges", "sampling")
}


def overridable(function: Any) -> Any:
    """The function with the protocol in front of it: one object for each function, which also takes
    the function's place in its module. Anything but a Python function comes back as it is.
    """
    if not isinstance(function, FunctionType):
        return function
    known: Any = function.__dict__.get(_MARK)
    if known is None:
        namespace, name = function.__globals__, function.__name__
        known = function.__dict__[_MARK] = Overridable(function)
        if namespace.get(name) is function:
            namespace[name] = known
    return known


def overridable_all(namespace: dict[str, Any], names: Any, elsewhere: str | None = None) -> None:
    """The same for the functions of a module that have these names.

    Args:
        namespace: Of the module.
        names: The functions.
        elsewhere: What precedes their names in other libraries, which compute with their tensors;
            None: modtree's functions run with these too.
    """
    for name in names:
        namespace[name] = function = overridable(namespace[name])
        if elsewhere is not None and isinstance(function, Overridable):
            _run_elsewhere(function, elsewhere + name)


def _run_elsewhere(function: Overridable, name: str) -> None:
    """Names the function in other libraries, unless an alias did."""
    if function._elsewhere is None:
        function._run_elsewhere(name)


def overridable_makers(namespace: dict[str, Any]) -> None:
    """The same for the functions in a namespace that make tensors: modes may take them over."""
    for name in list(namespace):
        if getattr(namespace.get(name), "__module__", None) in _MAKERS:
            namespace[name] = function = overridable(namespace[name])
            if name in _OF_TENSORS and isinstance(function, Overridable):
                _run_elsewhere(function, name)


def overridable_property(value: property) -> property:
    """The property with the protocol in front of its getter."""
    getter = value.fget
    if not isinstance(getter, FunctionType):
        return value
    guarded = Overridable(getter)
    result = property(guarded, value.fset, value.fdel, value.__doc__)
    # What the protocol announces is the attribute's own getter: Tensor.T.__get__.
    guarded._announce(result.__get__)
    return result
