# SPDX-License-Identifier: BSD-3-Clause
"""A table for notebooks: modules open and close, without scripts and without other files."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from modtree.inspection.summary.table import Column, Line, Table

__all__ = ["to_html"]

# Levels that are open at first.
_OPEN = 2
# Browsers stop to nest at about 500 elements; what is deeper is shown side by side.
_DEEPEST = 120
_WIDEST = 60
_INDENT = 2

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

_CLASSES = {"name": "name", "class": "c", "output shape": "s"}


def to_html(table: Table) -> str:
    """A part of a page. It follows the page's colours, light or dark."""
    columns = " ".join(f"{width}ch" for width in _widths(table))
    titles = "".join(
        f'<span class="{_class(column)}">{escape(column.title)}</span>' for column in table.columns
    )
    parts = [
        '<div class="modtree-summary">',
        f"<style>{_CSS}</style>",
        f'<div class="line head" style="grid-template-columns: {columns}">{titles}</div>',
        *_lines(table, columns),
        '<dl class="totals">',
        *(f"<dt>{escape(title)}</dt><dd>{escape(said)}</dd>" for title, said in table.totals),
        "</dl></div>",
    ]
    return "\n".join(parts)


def _widths(table: Table) -> list[int]:
    """Of the columns, in characters; names have room for indentation and the triangle."""
    widths = [len(column.title) for column in table.columns]
    for line in table.lines:
        for i, cell in enumerate(line.cells):
            indent = _INDENT * min(line.depth, _DEEPEST) + 3 if i == 0 else 0
            widths[i] = max(widths[i], min(len(cell), _WIDEST) + indent)
    return widths


def _lines(table: Table, columns: str) -> Iterator[str]:
    depths = [min(line.depth, _DEEPEST) for line in table.lines] + [0]
    open_depths: list[int] = []
    for i, line in enumerate(table.lines):
        while open_depths and open_depths[-1] >= depths[i]:
            open_depths.pop()
            yield "</details>"
        spans = "".join(_cells(table.columns, line, depths[i]))
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


def _cells(columns: list[Column], line: Line, depth: int) -> Iterator[str]:
    name = escape(line.cells[0].removesuffix(line.mark))
    mark = f'<span class="x">{line.mark}</span>' if line.mark else ""
    title = escape(line.cells[0], quote=True)
    indent = f"padding-left: {_INDENT * depth}ch"
    yield f'<span class="name" style="{indent}" title="{title}">{name}{mark}</span>'
    for column, cell in zip(columns[1:], line.cells[1:], strict=True):
        full = f' title="{escape(cell, quote=True)}"' if len(cell) > _WIDEST else ""
        yield f'<span class="{_class(column)}"{full}>{escape(cell)}</span>'


def _class(column: Column) -> str:
    return "n" if column.is_number else _CLASSES.get(column.title, "t")
