# SPDX-License-Identifier: BSD-3-Clause
"""The process that callgrind watches for ``python -m bench.bench_pythons``. It marks the parts by
calling ``getppid``, as ``bench/instructions/worker.py`` does.

    python -m bench.pythons_worker RECORD ROWS
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import bench_tree, micro, tree_calls, trees
from .common import FLOOR, OURS, Row, machine
from .tree_changes import construction
from .trees import Side

ATTEMPTS = 3  # with classes of their own each; the least counts
WARM_UP = 4
RUNS = 2  # rows that go back and forth take both ways
BLOCKS, EXPERTS, LINKS = 2, 24, 120  # trees small enough for valgrind


def _experts(s: Side, leaves: Iterator[Any] | None = None) -> Any:
    return trees.expert_tree(s, leaves, blocks=BLOCKS, experts=EXPERTS)


def rows() -> Iterator[Row]:
    """The rows of ``python -m bench`` that have a floor, with modtree's own leaves."""
    sides = [replace(trees.side(OURS))]
    yield from micro.rows(sides)
    w = bench_tree.Walked("experts", _experts, sides)
    yield construction(w)
    yield from bench_tree.tree_rows(w, first=True)
    yield from tree_calls.chain_rows(sides, LINKS)


def _mark(row: Row, side: str) -> None:
    """Runs one side of the row between two marks, without its setup."""
    run, setup = row.runs[side], row.setups.get(side)
    for _ in range(WARM_UP):
        run(*(() if setup is None else (setup(),)))
    for _ in range(RUNS):
        arguments = () if setup is None else (setup(),)
        gc.collect()
        gc.disable()
        os.getppid()
        result = run(*arguments)
        os.getppid()
        gc.enable()
        del result, arguments


def main(record: str, wanted: str) -> None:
    found: list[dict[str, Any]] = []
    for _ in range(ATTEMPTS):
        for row in rows():
            if wanted not in row.key or not {FLOOR, OURS} <= set(row.runs):
                continue
            for side in (FLOOR, OURS):
                _mark(row, side)
                items = row.counts.get(side, row.items) * RUNS
                kept = {"key": row.key, "title": row.title, "per": row.per}
                found.append({**kept, "side": side, "items": items, "runs": RUNS})
    Path(record).write_text(json.dumps({"machine": machine(), "parts": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
