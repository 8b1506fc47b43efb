# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.compare before.json after.json``: what became slower; exit status 1 when
something did.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .common import FLOOR, OURS, OURS_TORCH, TORCH_FLOOR, number

# What a side is compared by, so that a busier machine is not taken for a slower program.
_YARDSTICK = {OURS: FLOOR, OURS_TORCH: TORCH_FLOOR}


def _ratio(row_before: dict[str, Any], row_after: dict[str, Any], side: str) -> float | None:
    """After over before; corrected by the floor of the same rows when both have one."""
    before, after = row_before["values"].get(side), row_after["values"].get(side)
    if not before or not after:
        return None
    ratio = after / before
    for yardstick in (_YARDSTICK[side], FLOOR):
        floor_before = row_before["values"].get(yardstick)
        floor_after = row_after["values"].get(yardstick)
        if floor_before and floor_after and row_before["unit"] == "ns":
            return ratio * floor_before / floor_after
    return ratio


def compare(before: dict[str, Any], after: dict[str, Any], tolerance: float) -> tuple[str, int]:
    """A Markdown table and the number of rows that are slower by more than ``tolerance``."""
    rows_before = {row["key"]: row for row in before["rows"]}
    lines = ["| operation | side | before | after | ratio | |", "|---|---|---:|---:|---:|---|"]
    slower = 0
    for row in after["rows"]:
        old = rows_before.get(row["key"])
        if old is None:
            continue
        for side in (OURS, OURS_TORCH):
            ratio = _ratio(old, row, side)
            if ratio is None:
                continue
            mark = ""
            if ratio > 1 + tolerance:
                mark = "SLOWER"
                slower += 1
            elif ratio < 1 / (1 + tolerance):
                mark = "faster"
            values = f"{number(old['values'][side])} | {number(row['values'][side])}"
            lines.append(f"| {row['key']} | {side} | {values} | {ratio:.2f} | {mark} |")
    return "\n".join(lines), slower


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.25, help="how much slower is noise")
    options = parser.parse_args()
    before, after = (json.loads(p.read_text()) for p in (options.before, options.after))
    for label, record in (("before", before), ("after", after)):
        m = record["machine"]
        print(f"{label}: {m['commit']}, {m['cpu']}, {m['python']}, torch {m['torch']}")
    text, slower = compare(before, after, options.tolerance)
    print(f"ratios are after / before, with the floor's own change taken out\n\n{text}\n")
    print(f"{slower} slower by more than {options.tolerance:.0%}")
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
