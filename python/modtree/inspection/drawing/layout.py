# SPDX-License-Identifier: BSD-3-Clause
"""Where everything is in an SVG drawing: boxes in boxes, the children of each in columns that
are read down and then right.

Boxes are measured from the innermost outwards and then placed from the outermost inwards, both in
one pass over the list of boxes: a tree may be as deep as it likes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from modtree.inspection.drawing.outline import Box, Link, Outline
from modtree.inspection.drawing.wording import clean, detail, ellipsis, hidden, size, text_width

#: By style: name, class, detail, name of a tensor, number of parameters, badge of a repeat, legend.
FONT_SIZES = {"n": 12.0, "t": 12.0, "d": 10.5, "v": 10.5, "p": 11.0, "b": 10.0, "l": 10.5}

MARGIN = 12
_PADDING = 8
_GAP = 6
_HEAD = 23
_BASELINE = 15.5
_LINE = 14
_BAR = 3
_STACK = 5  # how far the sheets behind a repeated box look out
_BADGE_HEIGHT = 15

_NAME_ROOM, _TYPE_ROOM = 210, 230
_DETAIL_ROOM, _DETAIL_LINES = 250, 3
_INLINE_ROOM = 130

# Width to height: of the whole, as wide as a screen; of a box, rather a column.
_PAGE_RATIO, _BOX_RATIO = 1.5, 1.1
_MOST_COLUMNS = 16
_WORTH = 0.88  # what another column must save


@dataclass(slots=True)
class Text:
    """A line of text; x is its start, or its end or middle by ``anchor``."""

    x: float
    y: float
    text: str
    style: str
    anchor: str = "start"

    @property
    def width(self) -> float:
        return text_width(self.text, FONT_SIZES[self.style])


@dataclass(slots=True)
class Bar:
    """The share of the parameters, as a filled part of a line."""

    x: float
    y: float
    width: float
    filled: float


@dataclass(slots=True, eq=False)
class Frame:
    """A box with its place. Texts are placed against the page too."""

    box: Box
    x: float = 0
    y: float = 0
    width: int = 0
    height: int = 0
    texts: list[Text] = field(default_factory=list)
    badge: tuple[float, float, float, float] | None = None
    """x, y, width and height of what is behind "× 24"."""
    bar: Bar | None = None
    share: float | None = None
    columns: list[list[Frame]] = field(default_factory=list)
    inner_top: int = 0
    """Where the children begin."""

    @property
    def sheets(self) -> int:
        """How far the sheets behind it look out, which say that it stands for several."""
        return _STACK if self.box.count > 1 and self.box.kind != "more" else 0


def lay_out(outline: Outline, direction: str, shapes: bool) -> list[Frame]:
    """The frames of all boxes, in the order of the outline."""
    total = outline.root.parameters
    frames = [Frame(box) for box in outline.boxes]
    for frame in reversed(frames):
        box = frame.box
        if total and box.parameters:
            frame.share = min(1.0, box.parameters * box.copies / total)
        width, height = _head(frame, shapes)
        if box.children:
            inside = [frames[child.number] for child in box.children]
            ratio = _PAGE_RATIO if box is outline.root else _BOX_RATIO
            frame.columns = [inside] if direction == "TB" else _columns(inside, ratio)
            inner_width, inner_height = _extent(frame.columns)
            frame.inner_top = height
            width = max(width, inner_width + 2 * _PADDING)
            height += inner_height + _PADDING
        frame.width, frame.height = width + frame.sheets, height + frame.sheets
    frames[0].x = frames[0].y = MARGIN
    for frame in frames:
        _place_inside(frame)
    return frames


# -- measuring -------------------------------------------------------------------------------------


def _head(frame: Frame, shapes: bool) -> tuple[int, int]:
    """Writes the texts of a box against its own corner; returns the width that they need, and the
    height.
    """
    box = frame.box
    x: float = _PADDING
    for words, style, room in _title(box):
        piece = Text(x, _BASELINE, ellipsis(words, room, FONT_SIZES[style]), style)
        frame.texts.append(piece)
        x += piece.width + 7
    if box.count > 1:
        times = Text(0, _BASELINE - 0.5, f"×\u00a0{box.count:,}", "b", "middle")
        times.x = x + times.width / 2 + 5
        frame.badge = (x, (_HEAD - _BADGE_HEIGHT) / 2, times.width + 10, _BADGE_HEIGHT)
        frame.texts.append(times)
        x += times.width + 17
    number = size(box)
    lines = _detail_lines(box, shapes)
    if len(lines) == 1 and not number and not box.children:
        aside = Text(x, _BASELINE, lines[0], "d")
        if aside.width <= _INLINE_ROOM:
            frame.texts.append(aside)
            x += aside.width + 7
            lines = []
    if number:
        frame.texts.append(Text(0, _BASELINE, number, "p", "end"))
        x += frame.texts[-1].width + 14
    return _finish_head(frame, lines, x - 7)


def _finish_head(frame: Frame, lines: list[str], width: float) -> tuple[int, int]:
    """Writes the lines below the first one, which is so wide."""
    y = _HEAD
    for line in lines:
        frame.texts.append(Text(_PADDING, y + 9, line, "d"))
        width = max(width, _PADDING + frame.texts[-1].width)
        y += _LINE
    if frame.share is not None:
        frame.bar = Bar(_PADDING, y + 1, 0, 0)
        y += _BAR + 3
    return math.ceil(width + _PADDING), y + (3 if frame.share is not None or lines else 1)


def _title(box: Box) -> list[tuple[str, str, int]]:
    """The texts of the first line, each with its style and the room that it may take."""
    if box.kind == "more":
        return [(hidden(box), "d", _NAME_ROOM)]
    label = clean(box.label)
    if box.leaf is not None:
        return [(label, "v", _NAME_ROOM), (" ".join(detail(box, True)), "d", _DETAIL_ROOM)]
    type_name = "" if box.node is None else clean(box.node.type_name)
    if box.depth == 0 and not label:
        return [(type_name, "n", _TYPE_ROOM)]
    found = [(label or "(no name)", "n", _NAME_ROOM), (type_name, "t", _TYPE_ROOM)]
    return [piece for piece in found if piece[0]]


def _detail_lines(box: Box, shapes: bool) -> list[str]:
    if box.kind == "more" or box.leaf is not None:
        return []
    lines = _wrap(detail(box, shapes))
    below = hidden(box)
    return [*lines, below] if below else lines


def _wrap(pieces: list[str]) -> list[str]:
    """Lines of whole pieces, the last one cut short where there would be too many."""
    font = FONT_SIZES["d"]
    lines: list[str] = []
    for i, piece in enumerate(pieces):
        if lines and text_width(f"{lines[-1]} {piece}", font) <= _DETAIL_ROOM:
            lines[-1] += f" {piece}"
        elif len(lines) == _DETAIL_LINES:
            rest = " ".join(pieces[i : i + 40])  # more than that is never seen
            lines[-1] = ellipsis(f"{lines[-1]} {rest}", _DETAIL_ROOM, font)
            break
        else:
            lines.append(ellipsis(piece, _DETAIL_ROOM, font))
    return lines


# -- columns ---------------------------------------------------------------------------------------


def _columns(inside: list[Frame], ratio: float) -> list[list[Frame]]:
    """The columns that need the smallest page of that ratio; of the same, the fewest."""
    best, least = [inside], _page([inside], ratio)
    for count in range(2, min(len(inside), _MOST_COLUMNS) + 1):
        columns = _evened(inside, count)
        page = _page(columns, ratio)
        if page < _WORTH * least:
            best, least = columns, page
    return best


def _page(columns: list[list[Frame]], ratio: float) -> float:
    width, height = _extent(columns)
    return max(width / ratio, height)


def _extent(columns: list[list[Frame]]) -> tuple[int, int]:
    width = sum(max(frame.width for frame in column) for column in columns)
    return width + _GAP * (len(columns) - 1), max(map(_column_height, columns))


def _column_height(column: list[Frame]) -> int:
    return sum(frame.height for frame in column) + _GAP * (len(column) - 1)


def _evened(inside: list[Frame], count: int) -> list[list[Frame]]:
    """At most so many columns, with the least height for which that is enough."""
    low, high = max(frame.height for frame in inside), _column_height(inside)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(inside, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return _filled(inside, low)


def _filled(inside: list[Frame], limit: int) -> list[list[Frame]]:
    columns: list[list[Frame]] = []
    left = -1
    for frame in inside:
        left -= frame.height + _GAP
        if left < 0:
            columns.append([])
            left = limit - frame.height
        columns[-1].append(frame)
    return columns


# -- placing ---------------------------------------------------------------------------------------


def _place_inside(frame: Frame) -> None:
    """Moves the texts of a frame that has its place to that, and gives places to the children."""
    own_width = frame.width - frame.sheets
    for text in frame.texts:
        text.x = frame.x + (own_width - _PADDING if text.anchor == "end" else text.x)
        text.y += frame.y
    if frame.badge is not None:
        x, y, width, height = frame.badge
        frame.badge = (frame.x + x, frame.y + y, width, height)
    if frame.bar is not None:
        assert frame.share is not None
        length = own_width - 2 * _PADDING
        filled = max(1.0, length * frame.share)
        frame.bar = Bar(frame.x + _PADDING, frame.y + frame.bar.y, length, filled)
    if not frame.columns:
        return
    needed, _ = _extent(frame.columns)
    spare = own_width - 2 * _PADDING - needed
    x = frame.x + _PADDING
    for i, column in enumerate(frame.columns):
        extra = spare * (i + 1) // len(frame.columns) - spare * i // len(frame.columns)
        width = max(child.width for child in column) + extra
        y = frame.y + frame.inner_top
        for child in column:
            child.x, child.y, child.width = x, y, width
            y += child.height + _GAP
        x += width + _GAP


# -- lines between boxes that share a module or a tensor -------------------------------------------

_BELOW_TOP = 11  # at the first line of a box
_BEND = 46


@dataclass(slots=True)
class Curve:
    """A cubic curve: its start, the two points that bend it, and its end."""

    start: tuple[float, float]
    first: tuple[float, float]
    second: tuple[float, float]
    end: tuple[float, float]


def curves(links: list[Link], frames: list[Frame], width: float) -> list[Curve]:
    """A curve for each link, from side to side of its boxes, within a page of that width."""
    return [_curve(frames[link.source.number], frames[link.target.number], width) for link in links]


def _curve(source: Frame, target: Frame, width: float) -> Curve:
    right_of = source.x + source.width - source.sheets, target.x + target.width - target.sheets
    start_y, end_y = source.y + _BELOW_TOP, target.y + _BELOW_TOP
    if right_of[1] <= source.x:
        start, end, bends = source.x, right_of[1], (-_BEND, _BEND)
    elif right_of[0] <= target.x:
        start, end, bends = right_of[0], target.x, (_BEND, -_BEND)
    elif abs(source.x - target.x) < abs(right_of[0] - right_of[1]):
        start, end, bends = source.x, target.x, (-_BEND, -_BEND)
    else:  # one is above the other or in it: around the sides that are nearer to each other
        start, end = right_of
        bends = (_BEND, _BEND)
    x1, x2 = (min(max(x + bend, 2), width - 2) for x, bend in zip((start, end), bends, strict=True))
    return Curve((start, start_y), (x1, start_y), (x2, end_y), (end, end_y))
