# SPDX-License-Identifier: BSD-3-Clause
"""The lines of a summary, and their text: which modules get a line, what a line says, and the
totals below, for all ways of showing them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from modtree.inspection.dry_run import DryRun
from modtree.inspection.forward import Call
from modtree.inspection.phrases import (
    bytes_text,
    count_text,
    noun,
    printable,
    seconds_text,
    shape_text,
    share_text,
)
from modtree.inspection.tree import Leaf, Node, every_node, signature
from modtree.inspection.tree import fold as fold_siblings

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


# Notes name so many tied tensors.
_NAMED_TIES = 2


@dataclass(slots=True)
class Column:
    title: str
    is_number: bool = False


@dataclass(slots=True)
class Line:
    """A line of the table: how deep, and a text for each column."""

    depth: int
    cells: list[str]
    """The first is the name; where the line stands for several, it ends in ``mark``."""
    mark: str
    is_repeat: bool


@dataclass(slots=True)
class Table:
    columns: list[Column]
    lines: list[Line]
    totals: list[tuple[str, str]] = field(default_factory=list)


#: Titles, in the order of a table, and whether they are of a forward.
COLUMNS = {
    "name": False,
    "class": False,
    "kernel": False,
    "input shape": True,
    "output shape": True,
    "parameters": False,
    "share": False,
    "mult-adds": True,
    "buffers": False,
    "trainable": False,
    "bytes": False,
    "activations": True,
    "dtype": False,
    "time": True,
    "notes": False,
}
_NUMBERS = {"parameters", "share", "mult-adds", "buffers", "trainable", "bytes", "activations"}
_NUMBERS |= {"time"}
#: Shown if nothing else is asked for; the last ones where they say something.
_USUAL = {"name", "class", "output shape", "parameters", "mult-adds", "bytes", "dtype", "time"}


def chosen_columns(columns: Any, tree: Node, run: DryRun | None) -> list[str]:
    """The titles of the columns that ``columns=`` means, in their order.

    Raises:
        TypeError: it names no column, or one that needs a forward.
    """
    there = [name for name, is_run in COLUMNS.items() if run is not None or not is_run]
    if run is None or not run.is_measured:
        there = [name for name in there if name != "time"]
    if columns is None:
        wanted = set(_USUAL)
        wanted |= {"buffers"} if tree.buffers else set()
        wanted |= {"trainable"} if tree.trainable != tree.parameters else set()
        return [name for name in there if name in wanted]
    if columns == "all":
        return [name for name in there if name != "notes"]
    wanted = {"name", *([columns] if isinstance(columns, str) else columns)}
    for name in wanted:
        if name not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise TypeError(f"columns are {known}, or 'all', got {name!r}")
        if name not in there:
            what = "times" if name == "time" else "input_shape or example"
            raise TypeError(f"the column {name!r} needs {what}")
    return [name for name in there if name in wanted]


def make_table(
    tree: Node, rows: list[Row], run: DryRun | None, facts: Facts, columns: Any
) -> Table:
    """The table of these rows.

    Args:
        tree: The whole model, for the totals.
        rows: What gets a line.
        run: What a forward did; None for none.
        facts: What the nodes of the model have in common.
        columns: As :func:`modtree.summary` takes them.
    """
    titles = chosen_columns(columns, tree, run)
    notes = [printable(_note(row, run)) for row in rows]
    if "notes" not in titles and (columns is None or columns == "all") and any(notes):
        titles.append("notes")
    lines = []
    for row, note in zip(rows, notes, strict=True):
        cells = [note if title == "notes" else _cell(title, row, facts, run) for title in titles]
        lines.append(Line(row.depth, cells, _mark(row), _is_repeat(row)))
    made = [Column(title, title in _NUMBERS) for title in titles]
    return Table(made, lines, _totals(tree, rows, run, facts))


class Facts:
    """What the leaves below each node have in common, and what a forward did below it."""

    def __init__(self, tree: Node, run: DryRun | None) -> None:
        self._found: dict[int, tuple[frozenset[str], frozenset[str], bool]] = {}
        self._work: dict[int, tuple[int, int]] = {}
        self.parameters = tree.parameters
        for node in reversed(list(every_node(tree))):
            self._found[id(node)] = self._of(node)
            self._work[id(node)] = (0, 0) if run is None else self._work_of(node, run)

    def _work_of(self, node: Node, run: DryRun) -> tuple[int, int]:
        call = output_call(node, run)
        below = [self._work[id(child)] for child in node.children]
        computed = sum(each[0] for each in below) + (0 if call is None else call.multiply_adds)
        made = sum(each[1] for each in below)
        return computed, made or (0 if call is None else call.nbytes)

    def multiply_adds(self, nodes: list[Node]) -> int:
        """Of the layers in these nodes, in all calls."""
        return sum(self._work[id(node)][0] for node in nodes)

    def activations(self, nodes: list[Node]) -> int:
        """Bytes of what the innermost modules in these nodes returned, in all calls."""
        return sum(self._work[id(node)][1] for node in nodes)

    def _of(self, node: Node) -> tuple[frozenset[str], frozenset[str], bool]:
        parameters: set[str] = set()
        buffers: set[str] = set()
        is_lazy = False
        for leaf in node.leaves:
            (buffers if leaf.kind == "buffer" else parameters).add(leaf.dtype)
            is_lazy |= leaf.shape is None
        for child in node.children:
            below = self._found[id(child)]
            parameters |= below[0]
            buffers |= below[1]
            is_lazy |= below[2]
        return frozenset(parameters), frozenset(buffers), is_lazy

    def dtypes(self, nodes: list[Node]) -> list[str]:
        """Those of parameters, or of buffers without a parameter."""
        parameters = {name for node in nodes for name in self._found[id(node)][0]}
        return sorted(parameters or {name for node in nodes for name in self._found[id(node)][1]})

    def is_lazy(self, nodes: list[Node]) -> bool:
        return any(self._found[id(node)][2] for node in nodes)


def _cell(title: str, row: Row, facts: Facts, run: DryRun | None) -> str:
    nodes = row.pattern
    parameters = sum(node.parameters for node in nodes)
    match title:
        case "name":
            return printable(row.label) + _mark(row)
        case "class":
            return printable(", ".join(node.type_name for node in nodes))
        case "kernel":
            return "x".join(map(str, kernel_of(nodes[-1]) or ())) or "-"
        case "parameters" if facts.is_lazy(nodes):
            return f"{count_text(parameters)} + ?" if parameters else "?"
        case "parameters":
            return count_text(parameters)
        case "share":
            return share_text(parameters, facts.parameters) if parameters else "-"
        case "buffers":
            return count_text(sum(node.buffers for node in nodes))
        case "trainable":
            return share_text(sum(node.trainable for node in nodes), parameters)
        case "bytes":
            return bytes_text(sum(node.nbytes for node in nodes))
        case "dtype":
            return _dtypes_text(facts.dtypes(nodes))
    assert run is not None  # as chosen_columns has seen to
    match title:
        case "input shape":
            call = output_call(nodes[0], run)
            return "-" if call is None else shape_text(call.input)
        case "output shape":
            return _output(nodes[-1], run)
        case "mult-adds":
            return count_text(facts.multiply_adds(nodes))
        case "activations":
            return bytes_text(facts.activations(nodes))
    return seconds_text(seconds_of(row, run))


def kernel_of(node: Node) -> tuple[int, ...] | None:
    """The ``kernel_size`` of a layer of the library; None where it does not have one."""
    size = getattr(node.module, "kernel_size", None)
    sizes = size if isinstance(size, tuple) else (size,)
    return sizes if all(type(one) is int for one in sizes) else None


def _mark(row: Row) -> str:
    return f"  x {row.count:,}" if row.count > 1 else ""


def _dtypes_text(names: list[str]) -> str:
    return ", ".join(names) or "-" if len(names) < 3 else f"{len(names)} dtypes"


def output_call(node: Node, run: DryRun) -> Call | None:
    """The calls of a module; None for one that was not called, or that has a place before."""
    return None if node.first_path is not None else run.call(node.module)


def _output(node: Node, run: DryRun) -> str:
    call = output_call(node, run)
    return "-" if call is None else shape_text(call.output)


def seconds_of(row: Row, run: DryRun) -> float | None:
    """The mean of what the modules of a row took; of whole rounds where it stands for rounds."""
    found = [run.seconds(node.module) for node in row.nodes if node.first_path is None]
    measured = [seconds for seconds in found if seconds is not None]
    if not measured:
        return None
    return sum(measured) / (len(row.nodes) // row.period)


def _is_repeat(row: Row) -> bool:
    return all(node.first_path is not None for node in row.pattern)


def _note(row: Row, run: DryRun | None) -> str:
    """What the numbers of a row do not say."""
    if row.period > 1:
        return ""
    node = row.node
    if node.first_path is not None:
        return f"same as {node.first_path}" if node.first_path else "the model itself"
    notes = [
        f"{leaf.name} is {leaf.first_path}" for leaf in node.leaves if leaf.first_path is not None
    ]
    if len(notes) > _NAMED_TIES:
        notes[_NAMED_TIES:] = [f"{len(notes) - _NAMED_TIES} more tied"]
    call = None if run is None else output_call(node, run)
    if call is not None and call.count > 1:
        notes.append(f"called {call.count} times")
    return ", ".join(notes)


def _totals(tree: Node, rows: list[Row], run: DryRun | None, facts: Facts) -> list[tuple[str, str]]:
    nodes = list(every_node(tree))
    leaves = [leaf for node in nodes for leaf in node.leaves]
    modules = sum(node.first_path is None for node in nodes)
    totals = [
        ("parameters", _parameters_total(tree)),
        ("buffers", f"{tree.buffers:,}"),
        ("bytes", bytes_text(tree.nbytes) if tree.nbytes else "0 B"),
        ("modules", f"{modules:,}"),
    ]
    shared = _shared(nodes, leaves)
    if shared:
        totals.append(("shared", shared))
    lazy = sum(leaf.shape is None for leaf in leaves)
    if lazy:
        totals.append(("lazy", f"{noun(lazy, 'tensor')} without a shape before the first call"))
    if run is not None:
        totals.append(("input", ", ".join(shape_text(spec) for spec in run.input) or "-"))
        totals.append(("output", _output(tree, run)))
        totals.append(("mult-adds", f"{facts.multiply_adds([tree]):,}"))
        totals.append(("activations", bytes_text(facts.activations([tree]))))
        if run.is_measured:
            totals.append(("time", seconds_text(run.seconds(tree.module))))
    if any(row.count > 1 for row in rows):
        totals.append(("x n", "n equal blocks; numbers are per block"))
    return totals


def _parameters_total(tree: Node) -> str:
    frozen = tree.parameters - tree.trainable
    if not tree.parameters:
        return "0"
    if not frozen:
        return f"{tree.parameters:,} (all trainable)"
    return f"{tree.parameters:,} ({tree.trainable:,} trainable, {frozen:,} frozen)"


def _shared(nodes: list[Node], leaves: list[Leaf]) -> str:
    modules = len({node.first_path for node in nodes} - {None})
    tensors = len({leaf.first_path for leaf in leaves} - {None})
    parts = [noun(n, word) for n, word in ((modules, "module"), (tensors, "tensor")) if n]
    return f"{' and '.join(parts)} in several places, counted once" if parts else ""
