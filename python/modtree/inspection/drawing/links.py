# SPDX-License-Identifier: BSD-3-Clause
"""The lines of an SVG drawing between boxes that share a module or a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from modtree.inspection.drawing.layout import Frame
from modtree.inspection.drawing.outline import Link

__all__ = ["Curve", "curves"]

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
