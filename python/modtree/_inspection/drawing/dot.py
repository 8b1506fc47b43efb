# SPDX-License-Identifier: BSD-3-Clause
"""Drawings in DOT, the language of Graphviz."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from modtree._inspection.drawing.options import (
    DIRECTIONS,
    THEMES,
    check_choice,
    finish,
    outline_of,
)
from modtree._inspection.drawing.outline import Box, Link, Outline
from modtree._inspection.drawing.palette import DARK, LIGHT, Palette, kind_of_layer
from modtree._inspection.drawing.wording import clean, lines_of_text, shorten, tooltip

__all__ = ["to_dot"]

_LENGTH = 60
# Of lines, where the background is the reader's: 4.5 against white, and as much against black.
_MIDDLE = "#767676"


def to_dot(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    depth: int | None = None,
    fold: bool = True,
    shapes: bool = True,
    leaves: bool = False,
    max_boxes: int = 300,
    direction: str = "LR",
    theme: str = "auto",
) -> str:
    """Draws the tree of a model in DOT, for Graphviz and what else reads its files.

    Each module is a node with an edge from its parent. Siblings that are built alike are one node,
    "× 24". Dashed edges go to a module that is in the tree once more, dotted ones from tensor to
    tied tensor. See :func:`modtree.to_svg` for a picture without Graphviz.

    Args:
        model: A module of modtree or of torch.
        path: Where the text is written to as well, as UTF-8.
        depth: How many levels below the model are drawn; as many as there is room for by default.
        fold: Are siblings that are built alike one node?
        shapes: Do nodes show the shapes of their parameters? If not, they show ``extra_repr``.
        leaves: Has each parameter and buffer a node of its own?
        max_boxes: How many nodes there are at most. Where the tree has more, levels at the bottom
            are left out, and nodes say how many modules they have inside.
        direction: Where the tree grows, ``"LR"`` to the right or ``"TB"`` down.
        theme: ``"light"``, ``"dark"``, or ``"auto"`` for light nodes on no background, which
            suits both.

    Returns:
        The text.

    Raises:
        TypeError: the model is no module.
        ValueError: an option is out of its range.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        >>> print(mt.to_dot(net).splitlines()[0])
        digraph "Sequential" {
    """
    check_choice("direction", direction, DIRECTIONS)
    check_choice("theme", theme, THEMES)
    outline = outline_of(model, depth=depth, is_folded=fold, leaves=leaves, max_boxes=max_boxes)
    lines = _document(outline, shapes, direction, theme)
    return finish("\n".join([*lines, ""]), "text/vnd.graphviz", path)


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
    tip = ["the same module"] if link.kind == "shared" else ["tied", *map(clean, link.names[:8])]
    return (
        f'n{link.source.number} -> n{link.target.number} [style={style}, color="{colour}", '
        f"constraint=false, tooltip={quote([' '.join(tip)])}]"
    )
