# SPDX-License-Identifier: BSD-3-Clause
"""Drawings in Mermaid, which GitHub, GitLab and many wikis show as pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from modtree._inspection.drawing.options import (
    DIRECTIONS,
    THEMES,
    check_choice,
    finish,
    outline_of,
)
from modtree._inspection.drawing.outline import Box, Outline
from modtree._inspection.drawing.palette import DARK, LIGHT, kind_of_layer
from modtree._inspection.drawing.wording import lines_of_text

__all__ = ["to_mermaid"]

_LENGTH = 44
# Quotes and semicolons end something, angle brackets are HTML, the rest is Markdown; a hash begins
# the number of a character. Underscores inside words are none.
_SPECIAL = re.compile(r'[#"&<>;`*~|\\\[\]{}%@$^]|(?<!\w)_+|_+(?!\w)|^[-+]|(?<=\d)[.)](?=\s)')


def to_mermaid(
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
    """Draws the tree of a model as a flowchart of Mermaid, for a Markdown block ``mermaid``.

    Each module is a node with an arrow from its parent. Siblings that are built alike are one node,
    "× 24". Dashed arrows go to a module that is in the tree once more, dotted ones from tensor to
    tied tensor.

    Args:
        model: A module of modtree or of torch.
        path: Where the text is written to as well, as UTF-8.
        depth: How many levels below the model are drawn; as many as there is room for by default.
        fold: Are siblings that are built alike one node?
        shapes: Do nodes show the shapes of their parameters? If not, they show ``extra_repr``.
        leaves: Has each parameter and buffer a node of its own?
        max_boxes: How many nodes there are at most. Where the tree has more, levels at the bottom
            are left out, and nodes say how many modules they have inside. Mermaid as pages have it
            refuses texts of more than 50,000 characters and more than 500 arrows.
        direction: Where the tree grows, ``"LR"`` to the right or ``"TB"`` down.
        theme: ``"light"``, ``"dark"``, or ``"auto"`` for light nodes in the theme of the page.

    Returns:
        The text.

    Raises:
        TypeError: the model is no module.
        ValueError: an option is out of its range.

    Example:
        >>> print(mt.to_mermaid(nn.Sequential(nn.ReLU(), nn.Tanh()), theme="light"))
        %%{init: {"theme": "default"}}%%
        flowchart LR
          n0["Sequential"]:::other
          n1["0: ReLU"]:::activation
          n2["1: Tanh"]:::activation
          n0 --> n1
          n0 --> n2
          classDef activation fill:#fce6e4,stroke:#e09a94,color:#1f2328
          classDef other fill:#f4f5f7,stroke:#bcc3cc,color:#1f2328
        <BLANKLINE>
    """
    check_choice("direction", direction, DIRECTIONS)
    check_choice("theme", theme, THEMES)
    outline = outline_of(model, depth=depth, is_folded=fold, leaves=leaves, max_boxes=max_boxes)
    lines = _document(outline, shapes, direction, theme)
    return finish("\n".join([*lines, ""]), "text/vnd.mermaid", path)


def escape(text: str) -> str:
    """A cleaned line as it stands in a quoted label: each special character by its number."""
    return _SPECIAL.sub(lambda match: "".join(f"#{ord(char)};" for char in match[0]), text)


def _document(outline: Outline, shapes: bool, direction: str, theme: str) -> Iterator[str]:
    if theme != "auto":
        yield f'%%{{init: {{"theme": "{"dark" if theme == "dark" else "default"}"}}}}%%'
    yield f"flowchart {direction}"
    kinds = set()
    for box in outline.boxes:
        kind = _class(box)
        kinds.add(kind)
        label = "<br>".join(map(escape, lines_of_text(box, shapes, _LENGTH)))
        # A node with a second frame stands for several.
        left, right = ("[[", "]]") if box.count > 1 else ("[", "]")
        yield f'  n{box.number}{left}"{label}"{right}:::{kind}'
    edges = 0
    for box in outline.boxes:
        for child in box.children:
            yield f"  n{box.number} --> n{child.number}"
            edges += 1
    palette = DARK if theme == "dark" else LIGHT
    yield from _links(outline, edges, palette.link)
    for kind in sorted(kinds):
        tint = palette.tints.get(kind, palette.tints["other"])
        dashes = ",stroke-dasharray:4 3" if kind in ("shared", "more") else ""
        yield f"  classDef {kind} fill:{tint.fill},stroke:{tint.line},color:{palette.text}{dashes}"


def _class(box: Box) -> str:
    if box.kind in ("shared", "more"):
        return box.kind
    return "other" if box.node is None else kind_of_layer(box.node.type_name)


def _links(outline: Outline, edges: int, colours: dict[str, str]) -> Iterator[str]:
    """The arrows, and their styles, which go by the number of the arrow."""
    dashes = {"shared": "6 4", "tied": "1 4"}
    numbers: dict[str, list[int]] = {}
    for number, link in enumerate(outline.links, edges):
        numbers.setdefault(link.kind, []).append(number)
        yield f"  n{link.source.number} -.-> n{link.target.number}"
    for kind, found in numbers.items():
        style = f"stroke:{colours[kind]},stroke-dasharray:{dashes[kind]}"
        yield f"  linkStyle {','.join(map(str, found))} {style}"
