# SPDX-License-Identifier: BSD-3-Clause
"""What ``modtree bench`` times: operations on the same tree of modtree's modules and of torch's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = ["Operation", "count_modules", "operations"]

_CALLS = 1000  # of what is too quick to be timed alone
_BLOCKS = 16


class Operation(NamedTuple):
    """What is timed: ``run``, of which ``items`` come out."""

    name: str
    per: str
    items: int
    run: Callable[[], Any]


def count_modules(layers: int) -> int:
    """How many modules the tree has."""
    return 1 + layers * (1 + 2 * _BLOCKS)


def operations(lib: Any, layers: int) -> Iterator[Operation]:
    """The operations on a tree of a library, modtree or torch."""
    nn: Any = lib.nn
    base: Any = nn.Module

    class Block(base):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(lib.zeros(4))
            self.bias = nn.Parameter(lib.zeros(4))
            self.act = nn.Identity()

        def forward(self, x: Any) -> Any:
            return x

    def build() -> Any:
        return nn.ModuleList(
            [nn.ModuleList([Block() for _ in range(_BLOCKS)]) for _ in range(layers)]
        )

    tree, block, value = build(), Block(), nn.Parameter(lib.zeros(4))
    state = tree.state_dict()
    modules, entries = count_modules(layers), len(state)

    def read() -> None:
        for _ in range(_CALLS):
            block.weight  # noqa: B018

    def write() -> None:
        for _ in range(_CALLS):
            block.weight = value

    def call() -> None:
        for _ in range(_CALLS):
            block(None)

    yield Operation("m.weight", "read", _CALLS, read)
    yield Operation("m.weight = p", "write", _CALLS, write)
    yield Operation("m(x), forward returns x", "call", _CALLS, call)
    yield Operation("build the tree", "module", modules, build)
    yield Operation("parameters()", "entry", entries, lambda: list(tree.parameters()))
    yield Operation("named_parameters()", "entry", entries, lambda: list(tree.named_parameters()))
    yield Operation("state_dict()", "entry", entries, tree.state_dict)
    yield Operation("load_state_dict()", "entry", entries, lambda: tree.load_state_dict(state))
    yield Operation("train()", "module", modules, tree.train)
    yield Operation("zero_grad()", "entry", entries, tree.zero_grad)
    yield Operation("copy.deepcopy()", "module", modules, lambda: copy.deepcopy(tree))
