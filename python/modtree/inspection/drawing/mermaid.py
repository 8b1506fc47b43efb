# SPDX-License-Identifier: BSD-3-Clause
"""Drawings in Mermaid, which GitHub, GitLab and many wikis show as pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator

from modtree.inspection.drawing.outline import Box, Outline
from modtree.inspection.drawing.palette import DARK, LIGHT, kind_of_layer
from modtree.inspection.drawing.wording import lines_of_text

__all__ = ["write"]

# Of lines in a label. They are shortened where the text would be longer than pages accept.
_LENGTHS = (44, 30, 20)
_MOST_TEXT = 50_000

# Quotes and semicolons end something, angle brackets are HTML, the rest is Markdown; a hash begins
# the number of a character. Underscores inside words are none.
_SPECIAL = re.compile(r'[#"&<>;`*~|\\\[\]{}%@$^]|(?<!\w)_+|_+(?!\w)|^[-+]|(?<=\d)[.)](?=\s)')


def write(outline: Outline, shapes: bool, direction: str, theme: str) -> str:
    """An outline as text."""
    text = ""
    for length in _LENGTHS:
        text = "\n".join([*_document(outline, shapes, direction, theme, length), ""])
        if len(text) <= _MOST_TEXT:
            break
    return text


def escape(text: str) -> str:
    """A cleaned line as it is in a quoted label: each special character by its number."""
    return _SPECIAL.sub(lambda match: "".join(f"#{ord(char)};" for char in match[0]), text)


def _document(
    outline: Outline, shapes: bool, direction: str, theme: str, length: int
) -> Iterator[str]:
    if theme != "auto":
        yield f'%%{{init: {{"theme": "{"dark" if theme == "dark" else "default"}"}}}}%%'
    yield f"flowchart {direction}"
    kinds = set()
    for box in outline.boxes:
        kind = _class(box)
        kinds.add(kind)
        label = "<br>".join(map(escape, lines_of_text(box, shapes, length)))
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
