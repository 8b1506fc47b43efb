# SPDX-License-Identifier: BSD-3-Clause
"""The process that callgrind watches. It tells callgrind where a loop begins and ends by calling
``getppid``, which nothing else does (callgrind is told to write a part at each call of it).

    python -m bench.instructions.worker RECORD SIDES ROWS
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from .rows import Row, all_rows, fresh_side

ATTEMPTS = 3  # with classes of their own each; the least counts


def attempt(row: Row) -> None:
    """Runs the row's loop with ``rounds`` and twice as many, each between two marks."""
    gc.enable()
    gc.collect()
    gc.disable()
    loop = row.make(fresh_side(row.side))
    loop(row.rounds)  # until caches and free lists are as they stay
    loop(row.rounds)
    os.getppid()
    loop(row.rounds)
    os.getppid()
    loop(2 * row.rounds)
    os.getppid()


def count(row: Row) -> dict[str, Any]:
    """What the reader of callgrind's parts must know of the row."""
    found = {"key": row.key, "title": row.title, "per": row.per, "items": row.items}
    try:
        row.make(fresh_side(row.side))(1)
    except Exception as error:  # an older commit without this operation
        return found | {"error": f"{type(error).__name__}: {error}"}
    attempts = ATTEMPTS if row.rounds > 1 else 1
    for _ in range(attempts):
        attempt(row)
    return found | {"rounds": row.rounds, "attempts": attempts}


def main(record: str, sides: str, wanted: str) -> None:
    rows = [r for r in all_rows(sides.split(";")) if wanted in r.key]
    Path(record).write_text(json.dumps([count(r) for r in rows]))


if __name__ == "__main__":
    main(*sys.argv[1:])
