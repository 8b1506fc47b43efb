# SPDX-License-Identifier: BSD-3-Clause
"""Which operations take more instructions than before."""

from __future__ import annotations

from typing import Any

LIMIT = 0.05


def compare(
    before: dict[str, Any], after: dict[str, Any], limit: float = LIMIT
) -> tuple[str, list[str]]:
    """A Markdown table, and the keys of the rows that rose by more than ``limit`` or that can no
    longer be counted.
    """
    old = {row["key"]: row for row in before["rows"] if "instructions" in row}
    lines = ["| operation | per | before | after | change | |", "|---|---|---:|---:|---:|---|"]
    risen = []
    for row in after["rows"]:
        earlier = old.pop(row["key"], None)
        if earlier is None:
            continue  # new: nothing to compare with
        if "instructions" not in row:
            risen.append(row["key"])
            lines.append(f"| {row['key']} | - | - | - | - | FAILS: {row['error']} |")
            continue
        was, now = earlier["instructions"], row["instructions"]
        change = round(now / was - 1, 6) if was else float(now > 0)
        mark = "RISEN" if change > limit else "less" if change < -limit else ""
        if mark == "RISEN":
            risen.append(row["key"])
        lines.append(
            f"| {row['key']} | {row['per']} | {was:,.1f} | {now:,.1f} | {change:+.1%} | {mark} |"
        )
    for key in old:
        risen.append(key)
        lines.append(f"| {key} | - | - | - | - | GONE |")
    return "\n".join(lines), risen


def report(before: dict[str, Any], after: dict[str, Any], limit: float) -> int:
    """Prints the comparison; the exit status."""
    text, risen = compare(before, after, limit)
    print(f"{text}\n\nrisen by more than {limit:.0%}: {', '.join(risen) or 'none'}")
    return 1 if risen else 0
