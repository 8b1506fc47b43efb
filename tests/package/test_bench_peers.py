# SPDX-License-Identifier: BSD-3-Clause
"""The comparison with other libraries (bench/bench_peers.py): its adapters do what they say, and
its tables say what was measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys

import pytest
from helpers.bench_modules import ROOT, bench_on_path, load_bench  # noqa: F401
from helpers.needs import needs


@pytest.fixture
def peer(impl):
    names = {"modtree": "modtree", "modtree-torch": "modtree_torch", "torch": "torch"}
    return load_bench(f"peers.{names[impl.name]}").Library()


def test_every_library_has_an_adapter_and_knows_where_it_runs():
    environments = load_bench("peers.environments")
    names = [p.name for p in environments.PEERS]
    assert names[0] == "modtree" and len(set(names)) == len(names) == 10
    for p in environments.PEERS:
        assert importlib.util.find_spec(f"bench.peers.{p.name}"), p.name
        assert p.requirements or p.name == "modtree"
        assert not any(r.startswith("torch") and r != "torch==2.13.0" for r in p.requirements)


def test_operations_go_through_the_whole_tree(peer):
    worker = load_bench("peers.worker")
    m = peer.experts(2, 3)
    entries = 2 * (4 + 9)
    counts = {"parameters": entries, "modules": 1 + 1 + 2 * (4 + 3), "named": entries}
    assert {name: len(getattr(peer, name)(m)) for name in counts} == counts
    assert len(peer.state(m)) == entries
    for _, name, _ in worker.OPERATIONS:
        if name != "loads":
            assert worker._tree_operation(peer, name, m, 0.0) > 0


def test_loading_sets_the_values(peer):
    m = peer.experts(1, 1)
    state = {name: value + 2 for name, value in peer.foreign(m).items()}
    peer.load(m, state)
    assert all((p == 2).all() for p in m.parameters())


def test_counts_are_those_of_the_trees(peer):
    worker = load_bench("peers.worker")
    for tree, m in (("resnet50", peer.resnet50()), ("chain", peer.chain(worker.LINKS))):
        modules, parameters, entries = worker.COUNTS[tree]
        assert len(peer.modules(m)) == modules
        assert len(peer.parameters(m)) == parameters
        assert len(peer.state(m)) == (entries or parameters)


def test_a_row_that_fails_is_reported_and_the_rest_goes_on(capsys):
    def fails():
        raise RecursionError("too deep")

    load_bench("peers.worker").report(iter([("a", "item", fails), ("b", "item", lambda: 1.234)]))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["error"] == "RecursionError: too deep"
    assert lines[1] == {"key": "b", "per": "item", "value": 1.23}


def test_growth_stops_where_the_next_size_would_take_too_long(monkeypatch, peer, capsys):
    worker = load_bench("peers.worker")
    monkeypatch.setattr(worker, "GROWTH_SECONDS", 0.0)
    worker.report(worker.growth(peer, 0.0, 10_000))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["value" in line for line in lines] == [True, True, False, False]
    assert lines[2]["error"].startswith("TimeoutError")


RECORD = {
    "machine": dict.fromkeys(("cpu", "python", "commit", "command"), "x"),
    "peers": [
        {"title": "modtree", "version": "", "note": ""},
        {"title": "other", "version": "1.2", "note": "lazy"},
    ],
    "absent": {"third": "ERROR: no file for this Python"},
    "errors": {"other": {"chain.load": "RecursionError: deep", "chain.state": "RecursionError: x"}},
    "expressions": {"modtree": {"load": "`m.load(s)`"}, "other": {"load": "`update(m, s)`"}},
    "rows": [
        {
            "key": "read.plain",
            "per": "read",
            "values": {"modtree": 10.0, "other": 250.0},
            "spread": {"modtree": 0.01, "other": 0.2},
        },
        {
            "key": "growth.load.1000",
            "per": "entry",
            "values": {"modtree": 3.0},
            "spread": {"modtree": 0.0},
        },
    ],
}


def test_table_has_ratios_to_modtree_and_the_spread():
    text = load_bench("bench_peers").table(RECORD)
    assert "| read.plain | read | 10.0 | 250 (25.0) | 20% |" in text
    assert "| growth.load.1000 | entry | 3.0 | - | 0% |" in text
    assert "growth" not in load_bench("bench_peers").table(RECORD, ("read.plain",))


def test_notes_name_what_is_absent_and_what_failed():
    text = load_bench("bench_peers").notes(RECORD)
    assert "- third is absent: ERROR: no file for this Python" in text
    assert "not measured: chain.load, chain.state (RecursionError)" in text
    said = load_bench("bench_peers").expressions(RECORD)
    assert said == "- **load**: `m.load(s)` (modtree); `update(m, s)` (other)"


def test_pages_get_their_tables():
    readme = load_bench("readme")
    page = readme.all_peers_text_of(RECORD)
    assert "| read.plain | read | 10.0 | 250 (25.0) | 20% |" in page
    assert "third is absent" in page and "| growth" not in page
    assert "growth.load.1000" in readme.growth_text_of(RECORD)
    for mark in (readme._ALL_PEERS, readme._GROWTH):
        assert "new" in readme.insert((ROOT / "docs/performance.md").read_text(), "new", mark)


def test_a_library_that_pip_does_not_find_is_absent(tmp_path, monkeypatch):
    environments = load_bench("peers.environments")
    calls = []

    def run(command, **options):
        calls.append(command)
        failed = "pip" in command
        return subprocess.CompletedProcess(command, int(failed), "", "x\nERROR: No matching file")

    monkeypatch.setattr(environments.subprocess, "run", run)
    mlx = next(p for p in environments.PEERS if p.name == "mlx")
    with pytest.raises(environments.Absent, match="No matching file"):
        environments.interpreter(mlx, tmp_path)
    assert calls[0][:3] == [sys.executable, "-m", "venv"] and calls[1][-2:] == ["mlx[cpu]", "numpy"]


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    environments = load_bench("peers.environments")
    place = tmp_path / "paddle"
    place.mkdir()
    (place / "installed.json").write_text('["numpy", "paddlepaddle"]')
    monkeypatch.setattr(environments, "_make", lambda *a: pytest.fail("made again"))
    paddle = next(p for p in environments.PEERS if p.name == "paddle")
    assert environments.interpreter(paddle, tmp_path).is_relative_to(place)


@needs("matplotlib")
def test_growth_is_drawn_from_what_was_measured(tmp_path):
    plot = load_bench("plot")
    assert plot._growth_of(RECORD, "load", "modtree") == [(1000, 3.0)]
    assert plot._growth_of(RECORD, "load", "other") == []
    plot.draw_growth(RECORD, tmp_path / "growth.svg")
    drawn = (tmp_path / "growth.svg").read_text()
    assert ">modtree</text>" in drawn and ">loading a state dict</text>" in drawn
