# SPDX-License-Identifier: BSD-3-Clause
"""The lines of a summary: which modules get one, and what stands for several."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from modtree.inspection.dry_run import DryRun
from modtree.inspection.inputs import every_node
from modtree.inspection.phrases import shape_text
from modtree.inspection.tree import Node, signature
from modtree.inspection.tree import fold as fold_siblings

__all__ = ["Row", "make_rows"]

# Rounds such as Linear, Norm, ReLU, Dropout; longer ones are rare and take longer to find.
_LONGEST_PATTERN = 4


@dataclass(slots=True, eq=False)
class Row:
    """A line. The modules of ``nodes`` are alike; numbers are of one of them."""

    depth: int
    """How far it is indented."""
    level: int
    """How far below the model its module is: a round of different modules is indented once more."""
    label: str
    """The name, or the names of what the line stands for: ``"0-23"``."""
    count: int
    """How many neighbours the line stands for: 24."""
    nodes: list[Node]
    """Each module that the line stands for, in all repeats of the blocks around it. For a round of
    different modules, those of all rounds in their order."""
    period: int = 1
    """How many different modules make a round."""
    has_hidden_children: bool = False
    """True if children were left out, since they are too deep."""

    @property
    def node(self) -> Node:
        return self.nodes[0]

    @property
    def pattern(self) -> list[Node]:
        """The modules of one round; one if they are all alike."""
        return self.nodes[: self.period]


def make_rows(tree: Node, run: DryRun | None, depth: int | None, fold: bool) -> list[Row]:
    """The lines of a tree, each before those of its children.

    Args:
        tree: The model.
        run: What its forward did: blocks with different output shapes are not folded.
        depth: The deepest level that gets lines; None for no limit.
        fold: Whether equal neighbours take one line.
    """
    alike = signature if run is None or not fold else _alike_with_shapes(tree, run)
    rows: list[Row] = []
    waiting = [Row(0, 0, tree.type_name, 1, [tree])]
    while waiting:
        row = waiting.pop()
        rows.append(row)
        if depth is not None and row.level >= depth:
            row.has_hidden_children = row.period > 1 or bool(row.node.children)
        elif row.period > 1:
            waiting += reversed(_round(row))
        else:
            waiting += reversed(_children(row, alike, fold))
    return rows


def _round(row: Row) -> list[Row]:
    """The different modules of a round, each for those in its place in all rounds."""
    return [
        Row(row.depth + 1, row.level, node.name, 1, row.nodes[i :: row.period])
        for i, node in enumerate(row.pattern)
    ]


def _children(row: Row, alike: Callable[[Node], Hashable], fold: bool) -> list[Row]:
    depth, level = row.depth + 1, row.level + 1
    if not fold:
        return [Row(depth, level, child.name, 1, [child]) for child in row.node.children]
    found, start = [], 0
    for part in fold_siblings(row.node.children, alike=alike, longest_pattern=_LONGEST_PATTERN):
        stop = start + len(part.nodes)
        nodes = [child for parent in row.nodes for child in parent.children[start:stop]]
        found.append(Row(depth, level, part.label, part.count, nodes, part.period))
        start = stop
    return found


def _alike_with_shapes(tree: Node, run: DryRun) -> Callable[[Node], Hashable]:
    """What is equal for nodes that are built alike and return the same shapes, all the way down."""
    known: dict[Hashable, int] = {}
    kinds: dict[int, int] = {}
    for node in reversed(list(every_node(tree))):
        call = None if node.first_path is not None else run.call(node.module)
        output = None if call is None else shape_text(call.output)
        key = (node.signature, output, tuple(kinds[id(child)] for child in node.children))
        kinds[id(node)] = known.setdefault(key, len(known))
    return lambda node: kinds[id(node)]
