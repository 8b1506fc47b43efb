# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.summary``: a model as a table with one line for each module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from modtree.inspection.dry_run import DryRun
from modtree.inspection.inputs import arguments_of, holds_tensor, to_run
from modtree.inspection.summary.formats import RichTable, to_html, to_text
from modtree.inspection.summary.table import (
    Facts,
    Row,
    kernel_of,
    make_rows,
    make_table,
    output_call,
    seconds_of,
)
from modtree.inspection.summary.work import count_work
from modtree.inspection.tree import Node, read_tree

__all__ = ["Summary", "summarize", "summary_html"]

# As `times=True` measures; one run before them is not counted.
_RUNS = 3


def summarize(
    model: Any,
    input_shape: Any,
    example: Any,
    dtypes: Any,
    depth: int | None,
    fold: bool,
    times: bool | int,
    columns: Any,
) -> Summary:
    """See modtree.summary."""
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise TypeError(f"depth is a number of levels from 0 on, or None for all, got {depth!r}")
    if not isinstance(times, int) or times < 0:
        raise TypeError(f"times is True, False or a number of runs, got {times!r}")
    if example is None and holds_tensor(input_shape):
        input_shape, example = None, input_shape
    tree = read_tree(model)
    if input_shape is None and example is None:
        for name, value in (("dtypes", dtypes), ("times", times or None)):
            if value is not None:
                raise TypeError(f"{name} needs input_shape or example: there is no forward else")
        return Summary(tree, make_rows(tree, None, depth, fold), None, columns)
    tree = to_run(tree)
    args, kwargs = arguments_of(tree, input_shape, example, dtypes)
    run = DryRun(tree, args, kwargs, _RUNS if times is True else int(times), count_work)
    if tree.module is not model:  # lazy modules have shapes now
        tree = read_tree(tree.module)
    return Summary(tree, make_rows(tree, run, depth, fold), run, columns)


def summary_html(model: Any) -> str:
    """The tree of a model for a notebook, without a forward."""
    return summarize(model, None, None, None, None, True, False, None)._repr_html_()


class Summary:
    """What :func:`modtree.summary` found.

    Attributes:
        parameters: Elements of all parameters, each counted once.
        trainable: Of these, how many require a gradient.
        buffers: Elements of all buffers.
        nbytes: Bytes of parameters and buffers.
        multiply_adds: Of all layers in the forward; None without one. Linear, convolutional,
            recurrent and attention layers are counted, not what forwards compute by functions.
        activation_bytes: Of what the innermost modules returned in it; None without one.
    """

    def __init__(self, tree: Node, rows: list[Row], run: DryRun | None, columns: Any) -> None:
        self._tree, self._rows, self._run = tree, rows, run
        self._facts = Facts(tree, run)
        self._table = make_table(tree, rows, run, self._facts, columns)
        self.parameters = tree.parameters
        self.trainable = tree.trainable
        self.buffers = tree.buffers
        self.nbytes = tree.nbytes
        self.multiply_adds = None if run is None else self._facts.multiply_adds([tree])
        self.activation_bytes = None if run is None else self._facts.activations([tree])

    def __str__(self) -> str:
        return to_text(self._table)

    __repr__ = __str__  # what a prompt shows

    def __rich__(self) -> Any:
        return RichTable(self._table)

    def _repr_html_(self) -> str:
        return to_html(self._table)

    def show(self) -> None:
        """Prints it: in colours where a terminal watches and rich is installed, else as text."""
        if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
            importlib.import_module("rich").print(self)
        else:
            print(self)

    def to_dict(self) -> dict[str, Any]:
        """Totals, and ``"modules"``: the lines from top to bottom, with what ``json`` can write.

        Each line has its ``depth`` and the ``paths`` of all modules that it stands for.
        """
        run = self._run
        found: dict[str, Any] = {
            "class": self._tree.type_name,
            "parameters": self.parameters,
            "trainable": self.trainable,
            "buffers": self.buffers,
            "bytes": self.nbytes,
            "modules": [_as_dict(row, run, self._facts) for row in self._rows],
        }
        if run is not None:
            found["input"] = run.input
            found["multiply_adds"] = self.multiply_adds
            found["activation_bytes"] = self.activation_bytes
        return found


def _as_dict(row: Row, run: DryRun | None, facts: Facts) -> dict[str, Any]:
    nodes = row.pattern
    found: dict[str, Any] = {
        "depth": row.depth,
        "name": row.label,
        "paths": [node.path for node in row.nodes],
        "count": row.count,
        "class": ", ".join(node.type_name for node in nodes),
        "same_as": row.node.first_path if row.period == 1 else None,
        "parameters": sum(node.parameters for node in nodes),
        "trainable": sum(node.trainable for node in nodes),
        "buffers": sum(node.buffers for node in nodes),
        "bytes": sum(node.nbytes for node in nodes),
        "dtypes": facts.dtypes(nodes),
        "kernel": kernel_of(nodes[-1]),
    }
    if run is not None:
        call = output_call(nodes[-1], run)
        first = output_call(nodes[0], run)
        found["input"] = None if first is None else first.input
        found["output"] = None if call is None else call.output
        found["calls"] = 0 if call is None else call.count
        found["multiply_adds"] = facts.multiply_adds(nodes)
        found["activation_bytes"] = facts.activations(nodes)
    if run is not None and run.is_measured:
        found["seconds"] = seconds_of(row, run)
    return found
