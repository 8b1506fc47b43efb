# SPDX-License-Identifier: BSD-3-Clause
"""Drawings in DOT, the language of Graphviz, and in Mermaid, which GitHub, GitLab and many wikis
show as pictures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from modtree.inspection.drawing.outline import Box, Link, Outline
from modtree.inspection.drawing.palette import DARK, LIGHT, Palette, kind_of_layer
from modtree.inspection.drawing.wording import clean, lines_of_text, link_text, shorten, tooltip

# -- DOT -------------------------------------------------------------------------------------------

_DOT_LENGTH = 60
# Of lines, where the background is the reader's: 4.5 against white, and as much against black.
_MIDDLE = "#767676"


def write_dot(outline: Outline, shapes: bool, direction: str, theme: str) -> str:
    """An outline as text."""
    return "\n".join([*_dot_document(outline, shapes, direction, theme), ""])


def quote(lines: list[str]) -> str:
    """Cleaned lines as a string of DOT, each ending at the left. Graphviz reads backslashes and,
    as HTML has them, names of characters.
    """
    escaped = [
        line.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines
    ]
    return '"' + "\\l".join([*escaped, ""] if len(lines) > 1 else escaped) + '"'


def _dot_document(outline: Outline, shapes: bool, direction: str, theme: str) -> Iterator[str]:
    palette = DARK if theme == "dark" else LIGHT
    line = _MIDDLE if theme == "auto" else palette.muted
    page = "transparent" if theme == "auto" else palette.page
    root = outline.root.node
    assert root is not None
    yield f"digraph {quote([shorten(clean(root.type_name), _DOT_LENGTH)])} {{"
    yield f'  graph [rankdir={direction}, bgcolor="{page}", nodesep=0.12, ranksep=0.5];'
    yield (
        '  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=10, '
        f'margin="0.1,0.05", fontcolor="{palette.text}"];'
    )
    yield f'  edge [color="{line}", arrowsize=0.6, fontname="monospace", fontsize=9];'
    for box in outline.boxes:
        yield f"  n{box.number} [{_dot_attributes(box, shapes, palette)}];"
    for box in outline.boxes:
        for child in box.children:
            yield f"  n{box.number} -> n{child.number};"
    for link in outline.links:
        yield f"  {_dot_link(link, palette)};"
    yield "}"


def _dot_attributes(box: Box, shapes: bool, palette: Palette) -> str:
    kind = "other" if box.node is None else kind_of_layer(box.node.type_name)
    tint = palette.tints[kind]
    found = [
        f"label={quote(lines_of_text(box, shapes, _DOT_LENGTH))}",
        f"tooltip={quote(tooltip(box))}",
        f'fillcolor="{tint.fill}"',
        f'color="{tint.line}"',
    ]
    if box.kind in ("shared", "more"):
        found.append('style="rounded,filled,dashed"')
    if box.count > 1:
        found.append("peripheries=2")
    return ", ".join(found)


def _dot_link(link: Link, palette: Palette) -> str:
    colour = palette.link[link.kind]
    style = "dashed" if link.kind == "shared" else "dotted"
    return (
        f'n{link.source.number} -> n{link.target.number} [style={style}, color="{colour}", '
        f"constraint=false, tooltip={quote([link_text(link)])}]"
    )


# -- Mermaid ---------------------------------------------------------------------------------------

# Of lines in a label. They are shortened where the text would be longer than pages accept.
_MERMAID_LENGTHS = (44, 30, 20)
_MOST_TEXT = 50_000

# Quotes and semicolons end something, angle brackets are HTML, the rest is Markdown; a hash begins
# the number of a character. Underscores inside words are none.
_SPECIAL = re.compile(r'[#"&<>;`*~|\\\[\]{}%@$^]|(?<!\w)_+|_+(?!\w)|^[-+]|(?<=\d)[.)](?=\s)')


def write_mermaid(outline: Outline, shapes: bool, direction: str, theme: str) -> str:
    """An outline as text."""
    text = ""
    for length in _MERMAID_LENGTHS:
        text = "\n".join([*_mermaid_document(outline, shapes, direction, theme, length), ""])
        if len(text) <= _MOST_TEXT:
            break
    return text


def escape(text: str) -> str:
    """A cleaned line as it is in a quoted label: each special character by its number."""
    return _SPECIAL.sub(lambda match: "".join(f"#{ord(char)};" for char in match[0]), text)


def _mermaid_document(
    outline: Outline, shapes: bool, direction: str, theme: str, length: int
) -> Iterator[str]:
    if theme != "auto":
        yield f'%%{{init: {{"theme": "{"dark" if theme == "dark" else "default"}"}}}}%%'
    yield f"flowchart {direction}"
    kinds = set()
    for box in outline.boxes:
        kind = _mermaid_class(box)
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
    yield from _mermaid_links(outline, edges, palette.link)
    for kind in sorted(kinds):
        tint = palette.tints.get(kind, palette.tints["other"])
        dashes = ",stroke-dasharray:4 3" if kind in ("shared", "more") else ""
        yield f"  classDef {kind} fill:{tint.fill},stroke:{tint.line},color:{palette.text}{dashes}"


def _mermaid_class(box: Box) -> str:
    if box.kind in ("shared", "more"):
        return box.kind
    return "other" if box.node is None else kind_of_layer(box.node.type_name)


def _mermaid_links(outline: Outline, edges: int, colours: dict[str, str]) -> Iterator[str]:
    """The arrows, and their styles, which go by the number of the arrow."""
    dashes = {"shared": "6 4", "tied": "1 4"}
    numbers: dict[str, list[int]] = {}
    for number, link in enumerate(outline.links, edges):
        numbers.setdefault(link.kind, []).append(number)
        yield f"  n{link.source.number} -.-> n{link.target.number}"
    for kind, found in numbers.items():
        style = f"stroke:{colours[kind]},stroke-dasharray:{dashes[kind]}"
        yield f"  linkStyle {','.join(map(str, found))} {style}"
