# SPDX-License-Identifier: BSD-3-Clause
"""A table as plain text."""

from __future__ import annotations

from modtree.inspection.summary.table import Table

__all__ = ["to_text"]

_GAP = "  "
_INDENT = "  "


def to_text(table: Table) -> str:
    """Columns under their titles, names indented by depth, and the totals below."""
    lines = [[column.title for column in table.columns]]
    lines += [[_INDENT * line.depth + line.cells[0], *line.cells[1:]] for line in table.lines]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    aligned = [
        f"{{:>{width}}}" if column.is_number else f"{{:<{width}}}"
        for column, width in zip(table.columns, widths, strict=True)
    ]
    template = _GAP.join(aligned)
    text = [template.format(*cells).rstrip() for cells in lines]
    text.append("")
    width = max((len(title) for title, _ in table.totals), default=0)
    text += [f"{title:<{width}}{_GAP}{said}" for title, said in table.totals]
    return "\n".join(text)
