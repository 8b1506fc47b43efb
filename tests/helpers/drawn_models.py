# SPDX-License-Identifier: BSD-3-Clause
"""Models for the tests of drawings."""

from __future__ import annotations

import functools
import random

import modtree as mt
from modtree import nn

#: Names that mean something in XML, DOT, Mermaid or Markdown, or that hide or turn text.
ODD_NAMES = (
    '<&">',
    "&amp;",
    "]]>",
    "--> end",
    "\\back\\N",
    "`code`",
    "{curly}|pipe|[square]",
    "#35;",
    "*star* _under_",
    "1. list",
    "%% percent",
    "'quote'",
    "tab\tand\nline",
    "\x00\x1b[31m",
    "\ud800",
    "\uffff",
    "\u202eturned",
    "שלום עולם",
    "مرحبا",
    "漢字の名前",
    "🎉👨‍👩‍👧 x",
    "é" * 80,
    "very_long_" * 40,
)


def odd() -> nn.Module:
    """A child under each odd name; no two are built alike."""
    model = nn.Module()
    for i, name in enumerate(ODD_NAMES):
        model._modules[name] = nn.Linear(2, 3 + i)
    return model


@functools.cache
def experts(blocks: int, each: int) -> nn.Module:
    """A mixture of experts: 5 modules in each block, and the experts."""

    def block() -> nn.Module:
        found = nn.Module()
        found.norm, found.gate = nn.LayerNorm(4), nn.Linear(4, each, bias=False)
        found.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(each)])
        return found

    with mt.device("meta"):
        return nn.Sequential(nn.Embedding(10, 4), *[block() for _ in range(blocks)])


def chain(length: int) -> nn.Module:
    """Modules in each other."""
    module = nn.Linear(1, 1)
    for _ in range(length - 1):
        outer = nn.Module()
        outer.child = module
        module = outer
    return module


def random_tree(seed: int, modules: int = 120) -> nn.Module:
    """A tree of any form, with repeats, shared modules and ties."""
    rng = random.Random(seed)
    inner: list[nn.Module] = [nn.Module()]
    linears: list[nn.Module] = []
    for i in range(modules):
        parent = rng.choice(inner[-rng.choice([1, 5, 50]) :])
        name = rng.choice([f"layer{i}", str(i), "x" * rng.randrange(1, 60), f"漢{i}"])
        kind = rng.randrange(8)
        if kind == 0 and linears:
            parent._modules[name] = rng.choice([*linears, *inner[1:]])
        elif kind == 1 and linears:
            tied = nn.Linear(3, 3)
            tied.weight = rng.choice(linears).weight
            parent._modules[name] = tied
        elif kind == 2:
            size = rng.randrange(1, 4)
            alike = [nn.Sequential(nn.Linear(size, 3), nn.ReLU()) for _ in range(size * 3)]
            parent._modules[name] = nn.ModuleList(alike)
        elif kind == 3:
            parent._modules[name] = nn.LSTM(2, rng.randrange(1, 4), num_layers=2)
        elif kind < 6:
            linears.append(nn.Linear(3, 3))
            parent._modules[name] = linears[-1]
        else:
            inner.append(nn.Module())
            parent._modules[name] = inner[-1]
    return inner[0]
