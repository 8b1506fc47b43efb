# SPDX-License-Identifier: BSD-3-Clause
"""How far rows are from their floors on several CPythons (bench/bench_pythons.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from helpers.bench_modules import ROOT, bench_on_path, load_bench  # noqa: F401


def python(version, values):
    rows = [
        {"key": key, "title": key, "per": "item", "values": {"floor": floor, "modtree": own}}
        for key, (floor, own) in values.items()
    ]
    return {"machine": {"python": f"CPython {version}"}, "times": rows}


def test_rows_are_compared_by_their_distance_from_the_floor():
    module = load_bench("bench_pythons")
    pythons = [
        python("3.11.7", {"read": (10.0, 20.0), "write": (10.0, 90.0), "old": (1.0, 2.0)}),
        python("3.12.1", {"read": (5.0, 15.0), "write": (100.0, 90.0)}),
    ]
    most = {rows[0]["key"]: found for rows, found in module.compared(pythons, "times")}
    assert most == {"read": 1.5, "write": 1.0}  # a row that one of them lacks is left out
    assert module.table(pythons, "times").splitlines()[2:] == [
        "| read | item | 10.0, 20.0: 2.00 | 5.0, 15.0: 3.00 | 1.50 |",
        "| write | item | 10.0, 90.0: 9.00 | 100, 90.0: 0.90 | 1.00 |",
    ]


def test_parts_of_callgrind_belong_to_runs_in_their_order(tmp_path):
    module = load_bench("bench_pythons")
    totals = [1, 100, 1, 300, 1, 60, 1, 100, 1, 50, 1, 150]
    for number, total in enumerate(totals, start=1):
        (tmp_path / f"out.{number}").write_text(f"version: 1\ntotals: {total}\n")
    row = {"key": "read", "title": "read", "per": "read", "items": 4, "runs": 2}
    parts = [row | {"side": side} for side in ("floor", "modtree", "floor")]
    assert module.read(tmp_path, parts) == [
        {
            "key": "read",
            "title": "read",
            "per": "read",
            "values": {"floor": 50.0, "modtree": 40.0},
        }
    ]


def test_the_worker_runs_both_sides_of_a_row(tmp_path):
    record = tmp_path / "rows.json"
    path = os.pathsep.join([str(ROOT), *sys.path])
    subprocess.run(
        [sys.executable, "-m", "bench.pythons_worker", str(record), "read.plain"],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    parts = json.loads(record.read_text())["parts"]
    assert {(part["key"], part["side"]) for part in parts} == {
        ("read.plain", "floor"),
        ("read.plain", "modtree"),
    }
