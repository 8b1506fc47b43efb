# SPDX-License-Identifier: BSD-3-Clause
"""A table in the colours of a terminal, by rich."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from modtree.inspection.summary.table import Line, Table

__all__ = ["RichTable"]

_STYLES = {
    "name": "bold",
    "class": "cyan",
    "output shape": "green",
    "trainable": "magenta",
    "dtype": "yellow",
    "time": "red",
    "notes": "dim",
}

_GAP = 2
_INDENT = 2

# Columns of text may be cut down to so many characters, numbers are shown whole or not at all.
_LEAST = {"name": 24, "class": 12, "output shape": 12, "notes": 12}
# What is left out first where a terminal is narrow.
_LEFT_OUT = ("notes", "buffers", "dtype", "trainable", "bytes", "class")


class RichTable:
    """What rich prints: the columns that fit into the terminal, and the totals below."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        text: Any = importlib.import_module("rich.text").Text
        yield self._modules(options.max_width, text)
        yield ""
        totals = _frame(show_header=False)
        totals.add_column(style="bold")
        totals.add_column()
        for title, said in self._table.totals:
            totals.add_row(text(title), text(said))
        yield totals

    def _modules(self, width: int, text: Any) -> Any:
        shown = self._fitted(width)
        frame = _frame(header_style="bold underline")
        for i, cut in shown.items():
            column = self._table.columns[i]
            frame.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                style=_STYLES.get(column.title),
                width=cut,
                no_wrap=True,
                overflow="ellipsis",
            )
        for line in self._table.lines:
            cells = [_name(line, text) if i == 0 else text(line.cells[i]) for i in shown]
            frame.add_row(*cells, style="dim" if line.is_repeat else None)
        return frame

    def _widths(self) -> list[int]:
        widths = [len(column.title) for column in self._table.columns]
        for line in self._table.lines:
            for i, cell in enumerate(line.cells):
                indent = _INDENT * line.depth if i == 0 else 0
                widths[i] = max(widths[i], indent + len(cell))
        return widths

    def _fitted(self, width: int) -> dict[int, int]:
        """The positions of the columns that fit into a width, in their order, and how wide they
        are: what is left beside the least they want goes to the first ones.
        """
        full = self._widths()
        titles = [column.title for column in self._table.columns]
        fitted = {i: min(full[i], _LEAST.get(title, full[i])) for i, title in enumerate(titles)}
        for title in _LEFT_OUT:
            if sum(fitted.values()) + _GAP * len(fitted) <= width:
                break
            fitted = {i: cut for i, cut in fitted.items() if titles[i] != title}
        left = width - sum(fitted.values()) - _GAP * len(fitted)
        for i in fitted:
            more = max(0, min(left, full[i] - fitted[i]))
            fitted[i] += more
            left -= more
        return fitted


def _frame(**options: Any) -> Any:
    kind: Any = importlib.import_module("rich.table").Table
    return kind(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), **options)


def _name(line: Line, text: Any) -> Any:
    """Indented, the number of repeats in another colour."""
    shown = text(" " * (_INDENT * line.depth) + line.cells[0].removesuffix(line.mark))
    shown.append(line.mark, style="blue")
    return shown
