# SPDX-License-Identifier: BSD-3-Clause
"""Counting instructions (bench/instructions): the arithmetic, the comparison, and one row where
valgrind is installed.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys

import pytest
from helpers.bench_modules import ROOT, bench_on_path, load_bench  # noqa: F401


def record(**instructions):
    return {
        "machine": {"commit": "x"},
        "rows": [
            {"key": key, "title": key, "per": "item"}
            | ({"error": value} if isinstance(value, str) else {"instructions": value})
            for key, value in instructions.items()
        ],
    }


@pytest.mark.parametrize(
    ("after", "risen"),
    [
        (100.0, []),
        (105.0, []),
        (105.1, ["walk"]),
        (50.0, []),
        ("TypeError: no", ["walk"]),
    ],
    ids=["same", "at the limit", "above it", "less", "fails now"],
)
def test_compare_names_what_rose(after, risen):
    text, found = load_bench("instructions.compare").compare(record(walk=100.0), record(walk=after))
    assert found == risen
    assert "| walk |" in text


def test_compare_names_rows_that_are_gone_and_passes_over_new_ones():
    text, risen = load_bench("instructions.compare").compare(record(old=1.0), record(new=9.0))
    assert risen == ["old"] and "| old | - | - | - | - | GONE |" in text
    assert "new" not in text
    # What did not work before is new too.
    assert (
        load_bench("instructions.compare").compare(record(a="TypeError: no"), record(a=5.0))[1]
        == []
    )


def test_report_is_one_above_the_limit(capsys):
    before, after = record(walk=100.0), record(walk=120.0)
    report = load_bench("instructions.compare").report
    assert report(before, after, 0.05) == 1
    assert "risen by more than 5%: walk" in capsys.readouterr().out
    assert report(before, after, 0.25) == 0


def test_parts_are_read_in_order_and_the_least_attempt_counts(tmp_path):
    # Per attempt: set-up, three rounds, six rounds, of two items each.
    parts = [9000, 1030, 2050, 8000, 1030, 2030, 7000, 500, 920]
    for number, total in enumerate(parts, start=1):
        (tmp_path / f"out.{number}").write_text(f"version: 1\ntotals: {total}\n")
    rows = [
        {"key": "a", "title": "a", "per": "item", "items": 2, "rounds": 3, "attempts": 2},
        {"key": "b", "title": "b", "per": "item", "items": 1, "error": "TypeError: no"},
        {"key": "c", "title": "c", "per": "item", "items": 1, "rounds": 1, "attempts": 1},
    ]
    found = load_bench("instructions.callgrind").read(tmp_path, rows)
    assert [row.get("instructions") for row in found] == [166.67, None, 420.0]


def test_every_row_runs(ours):
    side = (
        load_bench("instructions.rows").OURS
        if ours.name == "modtree"
        else load_bench("instructions.rows").OURS_TORCH
    )
    rows = load_bench("instructions.rows").all_rows([side])
    keys = [row.key.removeprefix("torch.") for row in rows]
    assert len(set(keys)) == len(keys)
    assert {"read.parameter", "write.plain", "call.hook", "tree.loads", "chain.load"} <= set(keys)
    for row in rows:
        row.make(load_bench("instructions.rows").fresh_side(side))(1)


def test_without_valgrind_one_line(monkeypatch, capsys):
    main = importlib.import_module("bench.instructions.__main__")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["bench.instructions"])
    assert main.main() == 2
    assert capsys.readouterr().err.splitlines() == [load_bench("instructions.callgrind").MISSING]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="valgrind replaces malloc")
@pytest.mark.skipif(
    not list((ROOT / "python" / "modtree").glob("_C*.so")), reason="needs a build in place"
)
@pytest.mark.slow
def test_a_row_is_counted():
    rows = load_bench("instructions.callgrind").count(
        ROOT / "python", [load_bench("instructions.rows").OURS], "read.plain"
    )
    assert [row["key"] for row in rows] == ["read.plain"]
    # More than the bytecode's dispatch, less than a search through the bases of the class.
    assert 20 < rows[0]["instructions"] < 1500
