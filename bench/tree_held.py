# SPDX-License-Identifier: BSD-3-Clause
"""Walks of trees whose leaves and modules are in other lists too, as an optimizer, an average of
the weights and lists of layers hold them in every training; and walks of a small net, whose floor
is not memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from . import trees
from .bench_tree import Walked, walks
from .common import CALLS, Row
from .trees import Side

SMALL = 496  # modules: 990 parameters


def _held(w: Walked) -> Iterator[Row]:
    """The rows of the tree, with a list of each side's parameters and one of its modules."""
    kept = [(list(m.parameters()), list(m.modules())) for m in w.trees.values()]
    for row in walks(w, first=False):
        yield replace(row, key=row.key.replace(".repeated", ".held"), title=f"{row.title}, held")
    del kept  # not before the last row was measured


def held_rows(sides: list[Side]) -> Iterator[Row]:
    """The expert tree held, then the small net free and held."""
    yield from _held(Walked("experts", trees.expert_tree, sides))
    small = Walked("small", lambda s: trees.pairs(s, SMALL), sides)
    for row in itertools.chain(walks(small, first=False), _held(small)):
        title = f"{row.title}, {len(small.leaves)} parameters"
        yield replace(row, title=title).in_a_row(CALLS)
