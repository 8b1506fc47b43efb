# SPDX-License-Identifier: BSD-3-Clause
"""What users call has a docstring, and an Args section where it takes three arguments or more.

Layers, their functions and optimizers are not looked at here.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from modtree import _C

MODULES = (
    "modtree",
    "modtree.accelerator",
    "modtree.amp",
    "modtree.autograd",
    "modtree.autograd.functional",
    "modtree.autograd.graph",
    "modtree.autograd.profiler",
    "modtree.backends",
    "modtree.backends.cuda",
    "modtree.backends.cudnn",
    "modtree.compiler",
    "modtree.cpu",
    "modtree.cuda",
    "modtree.cuda.amp",
    "modtree.families",
    "modtree.families.base",
    "modtree.func",
    "modtree.hub",
    "modtree.linalg",
    "modtree.random",
    "modtree.serialization",
    "modtree.utils.checkpoint",
    "modtree.utils.cpp_extension",
    "modtree.utils.data",
    "modtree.utils.hooks",
)
ELSEWHERE = ("modtree.nn", "modtree.optim")


def is_ours(value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    return home.startswith("modtree") and not home.startswith(ELSEWHERE)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, also those that bases of ours give."""
    for base in cls.__mro__:
        if base.__module__.startswith("modtree"):
            for name, value in vars(base).items():
                if not name.startswith("_"):
                    is_property = isinstance(value, property)
                    yield name, value if is_property else getattr(cls, name)


def documented(module: str) -> Iterator[tuple[str, Any]]:
    """(name, function, class or property) of what a module offers."""
    there = importlib.import_module(module)
    names = {*getattr(there, "__all__", ()), *(vars(there) if module == "modtree" else ())}
    names |= set() if names else set(vars(there))
    for name in sorted(n for n in names if not n.startswith("_")):
        value = getattr(there, name)
        if inspect.isclass(value) and is_ours(value):
            yield f"{module}.{name}", value
            for member, found in members(value):
                if isinstance(found, property) or callable(found):
                    yield f"{module}.{name}.{member}", found
        elif callable(value) and is_ours(value):
            yield f"{module}.{name}", value


@pytest.mark.parametrize("module", MODULES)
def test_public_names_have_docstrings(module):
    assert [name for name, value in documented(module) if not value.__doc__] == []


def is_native(value: Any) -> bool:
    """Operations, and classes and methods that are written in C++, have short forms of help."""
    if inspect.isclass(value):
        return getattr(_C, value.__name__, None) is value
    return not (inspect.isfunction(value) or inspect.ismethod(value))


def count_parameters(value: Any) -> int:
    try:
        return len(set(inspect.signature(value).parameters) - {"self", "cls"})
    except ValueError:  # a native method, or an exception class
        return 0


@pytest.mark.parametrize("module", MODULES)
def test_functions_of_three_arguments_list_them(module):
    missing = []
    for name, value in documented(module):
        if is_native(value):
            continue
        text = value.__doc__ or ""
        # The function that writes nothing lists the arguments.
        elsewhere = value.__name__.endswith("_") and "in place" in text.partition("\n")[0]
        if count_parameters(value) >= 3 and "Args:" not in text and not elsewhere:
            missing.append(name)
    assert missing == []
