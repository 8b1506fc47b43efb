# SPDX-License-Identifier: BSD-3-Clause
"""A table as plain text, in the colours of a terminal by rich, and for notebooks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from html import escape
from typing import Any

from modtree.inspection.summary.table import Column, Line, Table

# Between columns, and for each level.
_GAP = 2
_INDENT = 2

# -- as text ---------------------------------------------------------------------------------------


def to_text(table: Table) -> str:
    """Columns under their titles, names indented by depth, and the totals below."""
    lines = [[column.title for column in table.columns]]
    lines += [
        [" " * (_INDENT * line.depth) + line.cells[0], *line.cells[1:]] for line in table.lines
    ]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    aligned = [
        f"{{:>{width}}}" if column.is_number else f"{{:<{width}}}"
        for column, width in zip(table.columns, widths, strict=True)
    ]
    template = (" " * _GAP).join(aligned)
    text = [template.format(*cells).rstrip() for cells in lines]
    text.append("")
    width = max((len(title) for title, _ in table.totals), default=0)
    text += [f"{title:<{width}}{' ' * _GAP}{said}" for title, said in table.totals]
    return "\n".join(text)


# -- by rich ---------------------------------------------------------------------------------------

_STYLES = {
    "name": "bold",
    "class": "cyan",
    "input shape": "green",
    "output shape": "green",
    "trainable": "magenta",
    "dtype": "yellow",
    "time": "red",
    "notes": "dim",
}

# Columns of text may be cut down to so many characters, numbers are shown whole or not at all.
_LEAST = {"name": 24, "class": 12, "input shape": 12, "output shape": 12, "notes": 12}
# What is left out first where a terminal is narrow.
_LEFT_OUT = (
    *("notes", "activations", "kernel", "share", "input shape", "buffers", "dtype", "trainable"),
    *("bytes", "mult-adds", "class"),
)


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


# -- for notebooks: modules open and close, without scripts and other files ------------------------

# Levels that are open at first.
_OPEN = 2
# Browsers stop to nest at about 500 elements; what is deeper is shown side by side.
_DEEPEST = 120
_WIDEST = 60

# Colours that can be read on white and on black; all else is the page's own.
_CSS = """
.modtree-summary {font: 12px/1.6 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  color: inherit; overflow-x: auto; max-width: 100%; text-align: left}
.modtree-summary .line {display: grid; column-gap: 2ch; width: max-content; min-width: 100%;
  box-sizing: border-box; white-space: pre; padding: 0 .5ch; border-radius: 3px}
.modtree-summary .line:hover {background: rgba(128, 128, 128, .18)}
.modtree-summary .head {font-weight: bold; border-bottom: 1px solid rgba(128, 128, 128, .6);
  border-radius: 0}
.modtree-summary .head span {color: inherit}
.modtree-summary summary {list-style: none; cursor: pointer; display: block}
.modtree-summary summary::-webkit-details-marker {display: none}
.modtree-summary summary .name::before {content: "\\25B8  "; opacity: .7}
.modtree-summary details[open] > summary .name::before {content: "\\25BE  "}
.modtree-summary .leaf .name::before {content: "  "}
.modtree-summary .line > span {overflow: hidden; text-overflow: ellipsis}
.modtree-summary .n {text-align: right; font-variant-numeric: tabular-nums}
.modtree-summary .c {color: #2a82c9}
.modtree-summary .s {color: #2b9348}
.modtree-summary .x {color: #b3661e; font-weight: bold}
.modtree-summary .repeat {opacity: .6}
.modtree-summary .totals {display: grid; grid-template-columns: max-content auto; column-gap: 2ch;
  margin: .6em .5ch 0; border-top: 1px solid rgba(128, 128, 128, .6); padding-top: .4em}
.modtree-summary .totals dt {font-weight: bold}
.modtree-summary .totals dd {margin: 0}
""".strip()

_HTML_CLASSES = {"name": "name", "class": "c", "input shape": "s", "output shape": "s"}


def to_html(table: Table) -> str:
    """A part of a page. It follows the page's colours, light or dark."""
    columns = " ".join(f"{width}ch" for width in _html_widths(table))
    titles = "".join(
        f'<span class="{_html_class(column)}">{escape(column.title)}</span>'
        for column in table.columns
    )
    parts = [
        '<div class="modtree-summary">',
        f"<style>{_CSS}</style>",
        f'<div class="line head" style="grid-template-columns: {columns}">{titles}</div>',
        *_html_lines(table, columns),
        '<dl class="totals">',
        *(f"<dt>{escape(title)}</dt><dd>{escape(said)}</dd>" for title, said in table.totals),
        "</dl></div>",
    ]
    return "\n".join(parts)


def _html_widths(table: Table) -> list[int]:
    """Of the columns, in characters; names have room for indentation and the triangle."""
    widths = [len(column.title) for column in table.columns]
    for line in table.lines:
        for i, cell in enumerate(line.cells):
            indent = _INDENT * min(line.depth, _DEEPEST) + 3 if i == 0 else 0
            widths[i] = max(widths[i], min(len(cell), _WIDEST) + indent)
    return widths


def _html_lines(table: Table, columns: str) -> Iterator[str]:
    depths = [min(line.depth, _DEEPEST) for line in table.lines] + [0]
    open_depths: list[int] = []
    for i, line in enumerate(table.lines):
        while open_depths and open_depths[-1] >= depths[i]:
            open_depths.pop()
            yield "</details>"
        spans = "".join(_html_cells(table.columns, line, depths[i]))
        grid = f'style="grid-template-columns: {columns}"'
        repeat = " repeat" if line.is_repeat else ""
        if depths[i + 1] > depths[i]:
            open_depths.append(depths[i])
            opened = " open" if line.depth < _OPEN else ""
            yield f'<details{opened}><summary><div class="line{repeat}" {grid}>{spans}</div>'
            yield "</summary>"
        else:
            yield f'<div class="line leaf{repeat}" {grid}>{spans}</div>'
    yield "</details>" * len(open_depths)


def _html_cells(columns: list[Column], line: Line, depth: int) -> Iterator[str]:
    name = escape(line.cells[0].removesuffix(line.mark))
    mark = f'<span class="x">{line.mark}</span>' if line.mark else ""
    title = escape(line.cells[0], quote=True)
    indent = f"padding-left: {_INDENT * depth}ch"
    yield f'<span class="name" style="{indent}" title="{title}">{name}{mark}</span>'
    for column, cell in zip(columns[1:], line.cells[1:], strict=True):
        full = f' title="{escape(cell, quote=True)}"' if len(cell) > _WIDEST else ""
        yield f'<span class="{_html_class(column)}"{full}>{escape(cell)}</span>'


def _html_class(column: Column) -> str:
    return "n" if column.is_number else _HTML_CLASSES.get(column.title, "t")
