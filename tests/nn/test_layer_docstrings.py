# SPDX-License-Identifier: BSD-3-Clause
"""What layers, functions and optimizers say of themselves: every argument, and a layer's shapes."""

from __future__ import annotations

import inspect
import re

import pytest

from modtree import nn, optim
from modtree.nn import functional, init, utils
from modtree.optim import lr_scheduler

PUBLIC = {
    f"{space.__name__}.{name}": getattr(space, name)
    for space in (nn, functional, init, utils, optim, lr_scheduler)
    for name in space.__all__
    if callable(getattr(space, name))
}
# Not layers, or layers of no shape of their own.
SHAPELESS = {
    "Buffer",
    "Container",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "UninitializedBuffer",
    "UninitializedParameter",
    "RNNBase",
    "RNNCellBase",
    "Sequential",
}


def named_in(doc):
    """The arguments that a docstring lists."""
    section = re.search(r"^ *Args:\n(.*?)(?=\n\s*\n|\Z)", doc, re.S | re.M)
    return set(re.findall(r"^ *\**(\w+): ", section[1], re.M)) if section else set()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_three_arguments_or_more_are_listed(name):
    doc = vars(PUBLIC[name]).get("__doc__") or PUBLIC[name].__doc__
    assert doc
    parameters = inspect.signature(PUBLIC[name]).parameters.values()
    own = {p.name for p in parameters if not p.name.startswith("_")}
    if len(own) >= 3 or "Args:" in doc:
        assert own <= named_in(doc)


@pytest.mark.parametrize("name", sorted(set(nn.__all__) - SHAPELESS))
def test_layers_give_the_shapes_of_input_and_output(name):
    layer = getattr(nn, name)
    if inspect.isclass(layer):
        assert re.search(r"^ *Shape:\n *- .*output", vars(layer)["__doc__"], re.S | re.M)
