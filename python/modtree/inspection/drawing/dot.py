# SPDX-License-Identifier: BSD-3-Clause
"""Drawings in DOT, the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from modtree.inspection.drawing.outline import Box, Link, Outline
from modtree.inspection.drawing.palette import DARK, LIGHT, Palette, kind_of_layer
from modtree.inspection.drawing.wording import clean, lines_of_text, link_text, shorten, tooltip

__all__ = ["write"]

_LENGTH = 60
# Of lines, where the background is the reader's: 4.5 against white, and as much against black.
_MIDDLE = "#767676"


def write(outline: Outline, shapes: bool, direction: str, theme: str) -> str:
    """An outline as text."""
    return "\n".join([*_document(outline, shapes, direction, theme), ""])


def quote(lines: list[str]) -> str:
    """Cleaned lines as a string of DOT, each ending at the left. Graphviz reads backslashes and,
    as HTML has them, names of characters.
    """
    escaped = [
        line.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines
    ]
    return '"' + "\\l".join([*escaped, ""] if len(lines) > 1 else escaped) + '"'


def _document(outline: Outline, shapes: bool, direction: str, theme: str) -> Iterator[str]:
    palette = DARK if theme == "dark" else LIGHT
    line = _MIDDLE if theme == "auto" else palette.muted
    page = "transparent" if theme == "auto" else palette.page
    root = outline.root.node
    assert root is not None
    yield f"digraph {quote([shorten(clean(root.type_name), _LENGTH)])} {{"
    yield f'  graph [rankdir={direction}, bgcolor="{page}", nodesep=0.12, ranksep=0.5];'
    yield (
        '  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=10, '
        f'margin="0.1,0.05", fontcolor="{palette.text}"];'
    )
    yield f'  edge [color="{line}", arrowsize=0.6, fontname="monospace", fontsize=9];'
    for box in outline.boxes:
        yield f"  n{box.number} [{_attributes(box, shapes, palette)}];"
    for box in outline.boxes:
        for child in box.children:
            yield f"  n{box.number} -> n{child.number};"
    for link in outline.links:
        yield f"  {_link(link, palette)};"
    yield "}"


def _attributes(box: Box, shapes: bool, palette: Palette) -> str:
    kind = "other" if box.node is None else kind_of_layer(box.node.type_name)
    tint = palette.tints[kind]
    found = [
        f"label={quote(lines_of_text(box, shapes, _LENGTH))}",
        f"tooltip={quote(tooltip(box))}",
        f'fillcolor="{tint.fill}"',
        f'color="{tint.line}"',
    ]
    if box.kind in ("shared", "more"):
        found.append('style="rounded,filled,dashed"')
    if box.count > 1:
        found.append("peripheries=2")
    return ", ".join(found)


def _link(link: Link, palette: Palette) -> str:
    colour = palette.link[link.kind]
    style = "dashed" if link.kind == "shared" else "dotted"
    return (
        f'n{link.source.number} -> n{link.target.number} [style={style}, color="{colour}", '
        f"constraint=false, tooltip={quote([link_text(link)])}]"
    )
