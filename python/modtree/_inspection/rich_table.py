# SPDX-License-Identifier: BSD-3-Clause
"""A table in the colours of a terminal, by rich."""

from __future__ import annotations

import importlib
from typing import Any

from modtree._inspection.table import Line, Table

__all__ = ["to_rich"]

_STYLES = {
    "name": "bold",
    "class": "cyan",
    "output shape": "green",
    "trainable": "magenta",
    "dtype": "yellow",
    "time": "red",
    "notes": "dim italic",
}


def to_rich(table: Table) -> Any:
    """What rich prints: the table, and the totals below."""
    kind: Any = importlib.import_module("rich.table").Table
    text: Any = importlib.import_module("rich.text").Text
    group: Any = importlib.import_module("rich.console").Group

    shown = kind(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
    for column in table.columns:
        shown.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            style=_STYLES.get(column.title),
            no_wrap=column.title != "notes",
            overflow="fold" if column.title == "notes" else "ellipsis",
        )
    for line in table.lines:
        shown.add_row(_name(line, text), *map(text, line.cells[1:]), style=_style(line))
    totals = kind(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    totals.add_column(style="bold")
    totals.add_column()
    for title, said in table.totals:
        totals.add_row(text(title), text(said))
    return group(shown, "", totals)


def _name(line: Line, text: Any) -> Any:
    """Indented, the number of repeats in another colour."""
    label, mark, count = line.cells[0].partition(f"  x {line.count:,}")
    shown = text("  " * line.depth + label)
    if line.count > 1:
        shown.append(mark + count, style="blue")
    return shown


def _style(line: Line) -> str | None:
    return "dim" if line.is_repeat else None
