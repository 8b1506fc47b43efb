# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.bench_dropin``: torch programs on torch's Module and on the native one."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .common import ROOT, machine, write_json

SIDES = ("torch", "modtree run")
PARTS = ("decoders", "vision", "trees", "memory", "transformers")


def _arguments(parts: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure torch programs plain and under the drop-in, in processes that take "
        "turns; of each side the least counts.",
    )
    parser.add_argument("--only", action="append", choices=parts, help="measure this part")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    return parser.parse_args()


def _run(parts: list[str], dropin: bool) -> list[list[Any]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "bench.dropin_worker", *parts]
    done = subprocess.run(
        [*command, "--dropin"] if dropin else command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


class Rows:
    """One dict per row: its name, what it is per, and the least value of each side."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, Any]] = {}

    def add(self, dropin: bool, measured: list[list[Any]]) -> None:
        for name, per, value in measured:
            row = self._by_name.setdefault(name, {"name": name, "per": per})
            side = SIDES[dropin]
            row[side] = min(value, row.get(side, value))

    def whole(self) -> list[dict[str, Any]]:
        """Those that both sides have."""
        return [row for row in self._by_name.values() if all(side in row for side in SIDES)]


def turns(rounds: int) -> Iterator[bool]:
    """Whether the next process runs under the drop-in. Who comes first changes, so that neither
    side always has the warmer machine.
    """
    for number in range(rounds):
        yield from (False, True) if number % 2 == 0 else (True, False)


def measure(parts: list[str], rounds: int) -> list[dict[str, Any]]:
    rows = Rows()
    for dropin in turns(rounds):
        rows.add(dropin, _run(parts, dropin))
    return rows.whole()


def _text(value: float, name: str) -> str:
    return f"{value:,.0f}" if "bytes" in name else time_text(value)


def time_text(value: float) -> str:
    """Seconds in the unit that has a digit before the point."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:,.{0 if value * factor >= 100 else 1}f} {unit}"
    raise AssertionError(value)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| what | per | torch | modtree run | ratio |",
        "|---|---|---:|---:|---:|",
    ]
    for row in rows:
        plain, ours = (row[side] for side in SIDES)
        name = row["name"]
        lines.append(
            f"| {name} | {row['per']} | {_text(plain, name)} | {_text(ours, name)} "
            f"| {ours / plain:.2f} |"
        )
    return "\n".join(lines)


def main(parts: tuple[str, ...] = PARTS, file: str = "bench-dropin.json") -> int:
    options = _arguments(parts)
    record: dict[str, Any] = {"machine": machine()}
    for key, value in record["machine"].items():
        print(f"{key}: {value}")
    record["rows"] = measure(options.only or list(parts), options.rounds)
    print(f"\n{table(record['rows'])}")
    write_json(options.out / file, record)
    slower = [row["name"] for row in record["rows"] if row[SIDES[1]] > row[SIDES[0]]]
    print(f"\nslower than torch: {', '.join(slower) or 'none'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
