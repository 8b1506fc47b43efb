# SPDX-License-Identifier: BSD-3-Clause
"""Measuring in several processes. Where a process's objects and code happen to lie makes some
operations a third slower or faster, for as long as it lives: one process is one throw of the dice.
"""

from __future__ import annotations

import pickle
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .common import ROOT, Result


@dataclass
class Measured:
    """What one process measured.

    Attributes:
        tables: Titles with the rows below them.
        growth: The points of ``growth.measure``, or None.
    """

    tables: list[tuple[str, list[Result]]] = field(default_factory=list)
    growth: list[dict[str, Any]] | None = None


def measure_in_processes(arguments: Sequence[str], count: int) -> Measured:
    """Runs ``python -m bench`` with these arguments ``count`` times, one after the other."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            print(f"process {number + 1} of {count}", file=sys.stderr)
            path = Path(folder) / f"{number}.pickle"
            command = [sys.executable, "-m", "bench", *arguments, "--record", str(path)]
            subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
            found.append(pickle.loads(path.read_bytes()))
    return merged(found)


def merged(found: Sequence[Measured]) -> Measured:
    """The least value of each side in any process."""
    tables = []
    for parts in zip(*(m.tables for m in found), strict=True):
        rows = [merged_row(same) for same in zip(*(rows for _, rows in parts), strict=True)]
        tables.append((parts[0][0], rows))
    if found[0].growth is None:
        return Measured(tables)
    points: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in (point for m in found for point in m.growth or ()):
        what = tuple(value for key, value in point.items() if key != "ns")
        if what not in points or point["ns"] < points[what]["ns"]:
            points[what] = point
    return Measured(tables, list(points.values()))


def merged_row(results: Sequence[Result]) -> Result:
    """One row of several processes. A side spreads as much as it does in the least steady process,
    or as the median of the processes is above the least of them.
    """

    def least(values: Sequence[dict[str, float]]) -> dict[str, float]:
        sides = dict.fromkeys(side for v in values for side in v)
        return {side: min(v[side] for v in values if side in v) for side in sides}

    values = least([r.values for r in results])
    spread = {}
    for side, value in values.items():
        median = statistics.median(r.values[side] for r in results if side in r.values)
        within = [r.spread[side] for r in results if side in r.spread]
        spread[side] = max([median / value - 1 if value else 0.0, *within])
    errors: dict[str, str] = {}
    for result in results:
        errors |= result.errors
    return replace(
        results[0],
        values=values,
        spread=spread if results[0].spread else {},
        errors=errors,
        base=least([r.base for r in results]),
    )
