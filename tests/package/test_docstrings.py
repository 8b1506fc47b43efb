# SPDX-License-Identifier: BSD-3-Clause
"""What users call has a docstring, and an Args section where it takes three arguments or more.
Functions on matrices give shapes, and published formulas their source.

Layers, their functions and optimizers are looked at in tests/nn/test_layer_docstrings.py.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import modtree
from modtree import _C

MODULES = (
    "modtree",
    "modtree.amp",
    "modtree.autograd",
    "modtree.autograd.functional",
    "modtree.autograd.graph",
    "modtree.cuda",
    "modtree.cuda.amp",
    "modtree.families",
    "modtree.core.family",
    "modtree.func",
    "modtree.linalg",
    "modtree.random",
    "modtree.serialization",
    "modtree.utils.checkpoint",
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
    if isinstance(value, _C.Overridable):  # a Python function with the protocol in front
        return False
    return not (inspect.isfunction(value) or inspect.ismethod(value))


def count_parameters(value: Any) -> int:
    try:
        return len(set(inspect.signature(value).parameters) - {"self", "cls"})
    except ValueError:  # a native method, or an exception class
        return 0


def test_functions_of_linear_algebra_give_shapes():
    functions = {
        name: f
        for name, f in documented("modtree.linalg")
        if not inspect.isclass(f) and not isinstance(f, _C.Op)
    }
    assert len(functions) > 10
    sections = re.compile(r"^Shape:\n {4}- .*^ {4}- output: ", re.S | re.M)
    docs = {name: inspect.getdoc(f) or "" for name, f in functions.items()}
    assert [name for name, text in docs.items() if not sections.search(text)] == []


#: Formulas that somebody published, by the function or class that computes them, and the source.
SOURCES = {
    "linalg.householder_product": "Schreiber and Van Loan, 1989",
    "linalg.matrix_exp": "Higham, 2005",
    "linalg.multi_dot": "Cormen et al.",
    "linalg.pinv": "Penrose, 1955",
    "nn.functional.cross_entropy": "Szegedy et al., 2015",
    "nn.functional.ctc_loss": "Graves et al., 2006",
    "nn.functional.gaussian_nll_loss": "Nix and Weigend, 1994",
    "nn.functional.huber_loss": "Huber, 1964",
    "nn.functional.kl_div": "Kullback and Leibler, 1951",
    "nn.functional.multi_margin_loss": "Weston and Watkins, 1999",
    "nn.functional.smooth_l1_loss": "Girshick",
    "nn.functional.triplet_margin_loss": "Balntas et al., 2016",
}
#: Optimizers without a formula of their own.
NO_FORMULA = {"Optimizer", "SparseAdam"}


@pytest.mark.parametrize("name", SOURCES)
def test_formulas_name_their_source(name):
    value = functools.reduce(getattr, name.split("."), modtree)
    assert SOURCES[name] in " ".join(value.__doc__.split())


def test_optimizers_name_the_source_of_their_formula():
    optimizers = {n: getattr(modtree.optim, n) for n in modtree.optim.__all__}
    unsourced = {
        name
        for name, cls in optimizers.items()
        if inspect.isclass(cls) and not re.search(r"\b(19|20)\d\d\)", cls.__doc__)
    }
    assert unsourced == NO_FORMULA


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
