# SPDX-License-Identifier: BSD-3-Clause
"""A line search for steps that decrease the value enough and flatten the slope (the strong Wolfe
conditions; Nocedal and Wright, 3.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["strong_wolfe"]

DECREASE = 1e-4  # of the decrease that the slope promises, how much must come
CURVATURE = 0.9  # of the slope, how much may be left


@dataclass
class Point:
    """A step along the direction: the value there, the gradient, and the slope along the
    direction.
    """

    t: float
    value: float
    gradient: Any
    slope: float


def _lowest(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is lowest, between bounds."""
    if a.t > b.t:
        a, b = b, a
    low, high = bounds if bounds is not None else (a.t, b.t)
    first = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = first**2 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2
    second = square**0.5
    t = b.t - (b.t - a.t) * ((b.slope + second - first) / (b.slope - a.slope + 2 * second))
    return min(max(t, low), high)


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    t: float,
    size: float,
    tolerance: float = 1e-9,
    most: int = 25,
) -> tuple[Point, int]:
    """(the point found, evaluations).

    Args:
        evaluate: Gives the point of a step length.
        start: The point of length 0.
        t: The first length to try.
        size: The largest entry of the direction.
        tolerance: Bracket lengths times ``size`` below this end the search.
        most: The most iterations.
    """

    def too_high(point: Point) -> bool:
        return point.value > start.value + DECREASE * point.t * start.slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE * start.slope

    before, now = start, evaluate(t)
    evaluations, iterations = 1, 0
    bracket = None
    while iterations < most:
        if too_high(now) or (iterations > 1 and now.value >= before.value):
            bracket = [before, now]
            break
        if flat(now):
            return now, evaluations
        if now.slope >= 0:
            bracket = [before, now]
            break
        bounds = (now.t + 0.01 * (now.t - before.t), now.t * 10)
        length = _lowest(before, now, bounds)
        before, now = now, evaluate(length)
        evaluations += 1
        iterations += 1
    if bracket is None:
        bracket = [start, now]
    low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
    stuck = False
    while iterations < most:
        ends = sorted(point.t for point in bracket)
        if (ends[1] - ends[0]) * size < tolerance:
            break
        length = _lowest(bracket[0], bracket[1])
        margin = 0.1 * (ends[1] - ends[0])
        if min(ends[1] - length, length - ends[0]) < margin:
            if stuck or not ends[0] < length < ends[1]:
                near_end = abs(length - ends[1]) < abs(length - ends[0])
                length = ends[1] - margin if near_end else ends[0] + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now = evaluate(length)
        evaluations += 1
        iterations += 1
        if too_high(now) or now.value >= bracket[low].value:
            bracket[high] = now
            low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
            continue
        done = flat(now)
        if not done and now.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = now
        if done:
            break
    return bracket[low], evaluations
