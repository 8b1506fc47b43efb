# SPDX-License-Identifier: BSD-3-Clause
"""Drawings as SVG: boxes in boxes, without scripts, fonts or anything else from outside."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from modtree.inspection.drawing.layout import FONT_SIZES, MARGIN, Bar, Frame, Text, curves, lay_out
from modtree.inspection.drawing.outline import Box, Outline
from modtree.inspection.drawing.palette import DARK, LIGHT, Palette, kind_of_layer
from modtree.inspection.drawing.wording import (
    clean,
    is_certain,
    link_text,
    short_count,
    shorten,
    text_width,
    tooltip,
)

_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_SPOKEN = 80  # characters of a name in the title and the description
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def write(outline: Outline, shapes: bool, direction: str, theme: str) -> str:
    """An outline as text."""
    return _document(outline, lay_out(outline, direction, shapes), theme)


def escape(text: str) -> str:
    """Cleaned text as XML has it, in elements and in attributes."""
    return text.translate(_ESCAPES)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _document(outline: Outline, frames: list[Frame], theme: str) -> str:
    root = frames[0]
    legend, bottom = _legend(outline, frames, root.x + root.width, root.y + root.height + 20)
    width, height = root.x + root.width + MARGIN, bottom + MARGIN
    body = [
        f'<rect class="page" width="{width}" height="{height}"/>',
        *(line for frame in frames for line in _frame(frame)),
        *_links(outline, frames, width),
        *(line for frame in frames for line in _texts(frame)),  # links pass below them
        *legend,
    ]
    title, description = _title(outline), _description(outline)
    # A page may have several drawings inside, so that ids have to differ.
    name = f"modtree-{zlib.crc32(''.join([title, description, *body]).encode()):08x}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" class="modtree-{theme}" '
        f'aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-desc">{escape(description)}</desc>',
        f"<style>{_style(theme)}</style>",
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def _title(outline: Outline) -> str:
    root = outline.root
    assert root.node is not None
    modules = f"{outline.modules:,} module{'s' * (outline.modules > 1)}"
    return (
        f"{shorten(clean(root.node.type_name), _SPOKEN)}: {modules}, {root.parameters:,} parameters"
    )


def _description(outline: Outline) -> str:
    """The first level in words, for who does not see the picture."""
    parts = []
    for box in outline.root.children[:20]:
        if box.node is not None and box.kind in ("module", "shared"):
            times = f" times {box.count}" if box.count > 1 else ""
            what = shorten(f"{clean(box.label)} {clean(box.node.type_name)}", _SPOKEN)
            parts.append(what + times)
    return f"The tree of modules, boxes in boxes. Below the model: {', '.join(parts) or 'nothing'}."


# -- parts -----------------------------------------------------------------------------------------


def box_class(box: Box) -> str:
    """The style of a box: by kind of layer, and for boxes that hold boxes by level."""
    if box.kind in ("shared", "more"):
        return box.kind
    kind = "other" if box.node is None else kind_of_layer(box.node.type_name)
    if box.leaf is not None:
        return f"leaf {box.kind}"
    return f"{kind} card{box.depth % 2}" if box.children else kind


def _frame(frame: Frame) -> Iterator[str]:
    tip = escape("\n".join(tooltip(frame.box)))
    yield f'<g class="{box_class(frame.box)}"><title>{tip}</title>'
    width, height = frame.width - frame.sheets, frame.height - frame.sheets
    for offset in (frame.sheets, frame.sheets / 2) if frame.sheets else ():
        yield _rect("box", frame.x + offset, frame.y + offset, width, height, 6)
    yield _rect("box", frame.x, frame.y, width, height, 6)
    if frame.badge is not None:
        yield _rect("badge", *frame.badge, 7)
    if frame.bar is not None:
        yield from _bar(frame.bar)
    yield "</g>"


def _texts(frame: Frame) -> Iterator[str]:
    yield f'<g class="{box_class(frame.box)}">'
    yield from map(_text, frame.texts)
    yield "</g>"


def _bar(bar: Bar) -> Iterator[str]:
    yield _rect("track", bar.x, bar.y, bar.width, 3, 1.5)
    yield _rect("bar", bar.x, bar.y, bar.filled, 3, 1.5)


def _rect(style: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    values = {"x": x, "y": y, "width": width, "height": height, "rx": radius}
    attributes = " ".join(f'{name}="{_number(value)}"' for name, value in values.items())
    return f'<rect class="{style}" {attributes}/>'


def _text(text: Text) -> str:
    # Other letters come from other fonts, which are made to keep to the width that was measured.
    width = "" if is_certain(text.text) else f' textLength="{_number(text.width)}"'
    width += ' lengthAdjust="spacingAndGlyphs"' if width else ""
    anchor = "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    place = f'x="{_number(text.x)}" y="{_number(text.y)}"'
    return f'<text class="{text.style}" {place}{anchor}{width}>{escape(text.text)}</text>'


def _links(outline: Outline, frames: list[Frame], width: float) -> Iterator[str]:
    for link, curve in zip(outline.links, curves(outline.links, frames, width), strict=True):
        yield f'<g class="link {link.kind}"><title>{escape(link_text(link))}</title>'
        points = [
            f"{_number(x)} {_number(y)}"
            for x, y in (curve.start, curve.first, curve.second, curve.end)
        ]
        yield f'<path d="M{points[0]}C{" ".join(points[1:])}"/>'
        x, y = curve.end
        yield f'<circle cx="{_number(x)}" cy="{_number(y)}" r="3"/></g>'


def _legend(
    outline: Outline, frames: list[Frame], right: float, top: float
) -> tuple[list[str], float]:
    """The lines of the legend, and where it ends."""
    entries = []
    if any(frame.bar for frame in frames):
        total = short_count(outline.root.parameters)
        entries.append(("bar", f"share of the {total} parameter{'' if total == '1' else 's'}"))
    kinds = {link.kind for link in outline.links}
    entries += [("shared", "the same module")] * ("shared" in kinds)
    entries += [("tied", "the same tensor")] * ("tied" in kinds)
    lines: list[str] = []
    x, y = float(MARGIN), top
    for kind, text in entries:
        needed = 34 + text_width(text, FONT_SIZES["l"])
        if x > MARGIN and x + needed > right:
            x, y = MARGIN, y + 16
        if x + needed <= right:
            lines += _legend_entry(kind, text, x, y)
            x += needed + 18
    return lines, y if lines else top - 20


def _legend_entry(kind: str, text: str, x: float, y: float) -> Iterator[str]:
    middle = y - 3.5
    if kind == "bar":
        yield '<g class="linear">'
        yield from _bar(Bar(x, middle - 1.5, 26, 11))
        yield "</g>"
    else:
        end = _number(x + 26)
        yield f'<g class="link {kind}"><path d="M{_number(x)} {_number(middle)}H{end}"/></g>'
    yield _text(Text(x + 34, y, text, "l"))


# -- style -----------------------------------------------------------------------------------------


def _style(theme: str) -> str:
    within = f".modtree-{theme}"
    sizes = "".join(
        f"{within} .{name}{{font-size:{_number(s)}px}}" for name, s in FONT_SIZES.items()
    )
    shape = (
        f"{within} text{{font-family:{_FONT};white-space:pre;pointer-events:none}}"
        f"{within} .n,{within} .b{{font-weight:700}}"
        f"{within} .link path{{fill:none;stroke-width:1.4}}"
        f"{within} .shared path{{stroke-dasharray:6 4}}"
        f"{within} .tied path{{stroke-dasharray:.1 4;stroke-linecap:round;stroke-width:2}}"
        f"{within} .shared .box,{within} .more .box{{stroke-dasharray:4 3}}"
    )
    colours = {"light": _colours(LIGHT, within), "dark": _colours(DARK, within)}
    if theme != "auto":
        return sizes + shape + colours[theme]
    dark = f"@media(prefers-color-scheme:dark){{{colours['dark']}}}"
    return sizes + shape + colours["light"] + dark


def _colours(palette: Palette, within: str) -> str:
    rules = [
        (".page", f"fill:{palette.page}"),
        ("text", f"fill:{palette.text}"),
        (".d", f"fill:{palette.muted}"),
        (".l", f"fill:{palette.muted}"),
        (".badge", f"fill:{palette.badge}"),
        (".b", f"fill:{palette.badge_text}"),
        (".track", f"fill:{palette.track}"),
        (".bar", f"fill:{palette.muted}"),
        (".box", f"stroke:{palette.line};fill:{palette.page}"),
        (".more .box", "fill:none"),
    ]
    for kind, tint in palette.tints.items():
        rules += [
            (f".{kind} .box", f"fill:{tint.fill};stroke:{tint.line}"),
            (f".{kind} .t", f"fill:{tint.accent}"),
            (f".{kind} .bar", f"fill:{tint.accent}"),
        ]
    for level, fill in enumerate(palette.card):
        rules.append((f".card{level} .box", f"fill:{fill}"))
    for kind, colour in palette.link.items():
        rules += [
            (f".{kind} path", f"stroke:{colour}"),
            (f".{kind} circle", f"fill:{colour}"),
        ]
    return "".join(f"{within} {selector}{{{values}}}" for selector, values in rules)
