# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark harness: its trees are what they claim to be, and its arithmetic is right. No test
looks at a time.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import pytest
from helpers.bench_modules import ROOT, bench_on_path, load_bench  # noqa: F401
from helpers.limits import HANGS_AFTER


@pytest.fixture
def side(impl):
    common = load_bench("common")
    names = {"modtree": common.OURS, "modtree-torch": common.OURS_TORCH, "torch": common.TORCH}
    return load_bench("trees").side(names[impl.name])


def test_small_expert_tree_has_the_names_of_its_parts(side):
    m = load_bench("trees").expert_tree(side, blocks=2, experts=3)
    names = [n for n, _ in m.named_parameters()]
    assert len(names) == 2 * (4 + 9)
    assert names[:5] == [
        "blocks.0.norm.weight",
        "blocks.0.norm.bias",
        "blocks.0.gate.weight",
        "blocks.0.gate.bias",
        "blocks.0.experts.0.w1",
    ]


def test_expert_tree_has_the_size_that_the_pages_say(ours):
    common, trees = load_bench("common"), load_bench("trees")
    s = trees.side(common.OURS if ours.name == "modtree" else common.OURS_TORCH)
    leaf = s.parameter()
    m = trees.expert_tree(s, iter(lambda: leaf, None))
    assert sum(1 for _ in m.modules()) == 15_862
    assert sum(1 for _ in m.named_parameters(remove_duplicate=False)) == 47_092


def test_resnet50_shape(side):
    m = load_bench("trees").resnet50(side)
    counts = [sum(1 for _ in walk()) for walk in (m.modules, m.parameters, m.buffers)]
    assert counts == [151, 161, 159]
    assert len(m.state_dict()) == 320


def test_chain(side):
    m = load_bench("trees").chain(side, 50)
    assert sum(1 for _ in m.modules()) == 50
    assert [n for n, _ in m.named_parameters()][-1] == "child." * 49 + "weight"


def test_plain_python_trees_have_no_library():
    trees = load_bench("trees")
    m = trees.expert_tree(trees.side(load_bench("common").FLOOR), blocks=1, experts=2)
    assert m.blocks.modules[0].experts.modules[1].w3.shape == trees.SHAPE


def test_nested_dicts_hold_every_array_once(ours):
    common, bench_tree = load_bench("common"), load_bench("bench_tree")
    s = load_bench("trees").side(common.OURS if ours.name == "modtree" else common.OURS_TORCH)
    build = lambda s: load_bench("trees").expert_tree(s, blocks=2, experts=3)  # noqa: E731
    w = bench_tree.Walked("small", build, [s])
    nested = load_bench("tree_changes").nested_dicts(w)

    def named(value, prefix):
        for key, item in value.items():
            name = f"{prefix}{key}"
            yield from named(item, f"{name}.") if isinstance(item, dict) else (name,)

    assert list(named(nested, "")) == w.entries


def test_unrolled_runs_the_statement_as_often_as_it_says():
    seen = []
    load_bench("common").unrolled("f(1)", copies=3, rounds=4, f=seen.append)()
    assert seen == [1] * 12


def test_time_row_counts_items_and_reports_what_fails():
    common = load_bench("common")

    def fails():
        raise ValueError("no")

    made = []
    row = common.Row(
        "k",
        "t",
        "item",
        2,
        {common.FLOOR: lambda x: made.append(x), common.OURS: fails},
        {common.FLOOR: lambda: 7},
    )
    result = common.time_row(row, repeats=4, seconds=10)
    assert made == [7] * 4
    assert list(result.values) == [common.FLOOR] and result.values[common.FLOOR] > 0
    assert result.errors == {common.OURS: "ValueError: no"}


def test_budgets_are_judged_by_floor_or_by_number():
    common = load_bench("common")
    budgets = (
        common.Budget(2),
        common.Budget(30, common.OURS_TORCH, None),
        common.Budget(3, common.TORCH),
    )
    values = {common.FLOOR: 10.0, common.OURS: 20.0, common.OURS_TORCH: 31.0}
    result = common.Result("k", "t", "item", values, budgets)
    assert [met for _, _, met in result.verdicts()] == [True, False]
    text = common.table([result])
    assert "<= 2 x floor: met" in text and "missed" in text


def test_budget_over_another_row_of_the_same_run():
    common = load_bench("common")
    budgets = tuple(common.Budget(100, side, None, over="call") for side in (common.OURS, "other"))
    values = {common.OURS: 140.0, "other": 260.0}
    result = common.Result("hook", "hook", "call", values, budgets)
    assert result.verdicts() == []  # the row `call` was not measured
    result.base = {common.OURS: 50.0, "other": 150.0}
    assert [met for _, _, met in result.verdicts()] == [True, False]
    assert "+90, reach <= call + 100: met" in common.table([result])


def test_budget_as_a_fraction_of_torch():
    common = load_bench("common")
    result = common.Result(
        "train",
        "train",
        "call",
        {common.OURS: 10.0, common.TORCH: 1200.0},
        (common.Budget(1 / 100, common.OURS, common.TORCH),),
    )
    assert "torch / 120, reach <= torch / 100: met" in common.table([result])


def test_a_side_may_do_another_number_of_operations(monkeypatch):
    common = load_bench("common")
    ticks = itertools.count(0, 6000)
    monkeypatch.setattr(common.time, "process_time_ns", lambda: next(ticks))
    runs = dict.fromkeys((common.FLOOR, common.OURS), int)
    row = common.Row("k", "t", "item", 1, runs, counts={common.FLOOR: 1000})
    result = common.time_row(row, repeats=5, seconds=10)
    assert result.values == {common.FLOOR: 6.0, common.OURS: 6000.0}
    assert result.spread == {common.FLOOR: 0.0, common.OURS: 0.0}


def test_floors_take_no_turns_by_themselves():
    common = load_bench("common")
    turns = []
    runs = {side: (lambda s=side: turns.append(s)) for side in (common.FLOOR, common.OURS)}
    slow = {common.OURS: lambda: time.sleep(0)}
    common.time_row(common.Row("k", "t", "item", 1, dict(runs)), repeats=5, seconds=10)
    assert turns == [common.FLOOR, common.OURS] * 5
    turns.clear()
    row = common.Row(
        "k", "t", "item", 1, runs | {common.OURS: lambda _: turns.append("ours")}, slow
    )
    common.time_row(row, repeats=9, seconds=0)  # what takes any time stops after three runs
    assert turns == [common.FLOOR, "ours"] * 3
    only = common.Row("k", "t", "item", 1, {common.FLOOR: runs[common.FLOOR]})
    turns.clear()
    common.time_row(only, repeats=4, seconds=10)
    assert turns == [common.FLOOR] * 4


def test_calls_in_a_row_drop_each_result_before_the_next_call(monkeypatch):
    common = load_bench("common")
    ticks = itertools.count(0, 6000)
    monkeypatch.setattr(common.time, "process_time_ns", lambda: next(ticks))
    alive, most = set(), []

    class Result:
        def __init__(self):
            alive.add(id(self))
            most.append(len(alive))

        def __del__(self):
            alive.discard(id(self))

    row = common.Row("k", "t", "item", 3, {common.OURS: Result}, counts={"other": 5})
    several = row.in_a_row(10)
    result = common.time_row(several, repeats=2, seconds=10)
    assert len(most) == 20 and max(most) == 1
    assert result.values == {common.OURS: 6000 / 30}
    assert several.counts == {"other": 50}


def test_rows_with_set_ups_stay_one_call():
    common = load_bench("common")
    row = common.Row("k", "t", "item", 3, {common.OURS: int}, {common.OURS: int})
    assert row.in_a_row(10) is row


def test_processes_are_merged_by_the_least_value():
    common = load_bench("common")

    def one(ours, floor, growth, errors=()):
        row = common.Result(
            "k",
            "t",
            "item",
            {common.OURS: ours, common.FLOOR: floor},
            (common.Budget(2),),
            dict(errors),
            spread={common.OURS: 0.1, common.FLOOR: 0.0},
            base={common.OURS: ours / 2},
        )
        point = {"shape": "flat", "operation": "load", "side": "x", "entries": 10, "ns": growth}
        return common.Measured([("title", [row])], [point])

    found = common.merged([one(4.0, 2.0, 7.0), one(3.0, 5.0, 6.0, {"torch": "no"}.items())])
    ((title, (row,)),) = found.tables
    assert title == "title"
    assert row.values == {common.OURS: 3.0, common.FLOOR: 2.0}
    assert row.base == {common.OURS: 1.5}
    assert row.errors == {"torch": "no"}
    assert row.spread == {common.OURS: pytest.approx(0.5 / 3), common.FLOOR: 0.75}
    assert [(b.limit, met) for b, _, met in row.verdicts()] == [(2, True)]
    assert [p["ns"] for p in found.growth] == [6.0]


def test_each_process_measures_and_leaves_what_it_found():
    common = load_bench("common")
    arguments = ["--only", "chain900", "--rows", "train", "--sides", common.OURS]
    found = common.measure_in_processes([*arguments, "--repeats", "1"], 2)
    ((title, (row,)),) = found.tables
    assert row.key == "chain900.train" and found.growth is None
    assert set(row.values) == {common.OURS, common.FLOOR} and min(row.values.values()) > 0


def test_growth_measures_each_shape_and_operation(side):
    growth = load_bench("growth")
    points = growth.measure([side], entries=(300, 900), seconds=60.0)
    seen = {(p["shape"], p["operation"]) for p in points}
    assert seen == {(s, o) for s in growth.SHAPES for o in ("load_state_dict", "named_parameters")}
    assert len(points) == 8
    assert all(p["ns"] > 0 for p in points)
    assert growth.table(points).count("\n") == 5


def run_once(row):
    """The result of each function of a row, run as ``time_row`` does."""
    for name, run in row.runs.items():
        setup = row.setups.get(name)
        yield name, run(*(() if setup is None else (setup(),)))


def small_tree(side):
    trees = load_bench("trees")
    build = lambda s: trees.expert_tree(s, blocks=2, experts=2)  # noqa: E731
    return load_bench("bench_tree").Walked("small", build, [side])


def test_every_row_runs_on_a_small_tree(side):
    """Each row's functions, once, on a tree of two blocks: what the table times also works."""
    bench_tree, changes = load_bench("bench_tree"), load_bench("tree_changes")
    w = small_tree(side)
    rows = [
        *bench_tree.walks(w, first=True),
        *bench_tree.state_dicts(w),
        *bench_tree.loads(w),
        *changes.whole(w),
        *changes.copies(w),
    ]
    for row in rows:
        for name, result in run_once(row):
            if isinstance(result, list | dict) and row.per in ("item", "entry"):
                assert len(result) == row.items, (row.key, name)


def test_rows_of_one_module_and_per_call_run(side):
    for row in load_bench("micro").rows([side]):
        assert len(dict(run_once(row))) == len(row.runs)
    rows = load_bench("tree_calls").call_rows([side])
    small = [r for r in rows if r.key.startswith("calls10.")]
    assert len(small) == 6
    for row in small:
        assert len(dict(run_once(row))) == 1


def test_chain_is_judged_by_the_same_modules_in_one_list(ours):
    common = load_bench("common")
    name = common.OURS if ours.name == "modtree" else common.OURS_TORCH
    floor = common.FLOOR if name == common.OURS else common.TORCH_FLOOR
    s = load_bench("trees").side(name)
    assert sum(1 for _ in load_bench("trees").flat_links(s, 30).modules()) == 30
    rows = {r.key: r for r in load_bench("tree_calls").chain_rows([s])}
    assert set(rows["chain900.state_dict"].runs) == {name, floor}
    state, names = rows["chain900.state_dict"].runs[floor]()
    # 899 modules of the list have a parameter; the names that are joined are those of the chain.
    assert len(state) == 899 and len(names) == 900
    assert list(names) == list(rows["chain900.state_dict"].runs[name]())


def test_no_side_has_a_second_holder_of_its_leaves(ours):
    """A list of one side's leaves or modules would slow that side down, and no other."""
    common = load_bench("common")
    s = load_bench("trees").side(common.OURS if ours.name == "modtree" else common.OURS_TORCH)
    w = small_tree(s)
    rows = [*load_bench("bench_tree").walks(w, first=False)]
    m = w.trees[s.name]
    parameter = next(m.parameters())
    child = m.blocks
    held = object()  # by this name, and up to CPython 3.13 as the argument
    expected = sys.getrefcount(held) + 1  # the registry
    assert [sys.getrefcount(parameter), sys.getrefcount(child)] == [expected, expected]
    assert len(rows) == 4


def test_rows_that_change_a_tree_have_trees_of_their_own(ours):
    common = load_bench("common")
    s = load_bench("trees").side(common.OURS if ours.name == "modtree" else common.OURS_TORCH)
    w = small_tree(s)
    rows = {r.key: r for r in load_bench("tree_changes").whole(w)}
    rows["small.to"].runs[s.name]()
    assert {p.dtype for p in w.trees[s.name].parameters()} == {s.lib.float32}
    row = rows["small.zero_grad"]
    row.setups[s.name]()
    assert all(p.grad is None for p in w.trees[s.name].parameters())


def test_readme_table_goes_between_its_marks():
    readme = load_bench("readme")
    machine = dict.fromkeys(("cpu", "python", "numpy", "torch", "commit", "command"), "x")
    common = load_bench("common")
    values = {common.FLOOR: 1.0, common.OURS: 2.0, common.TORCH: 9.0}
    rows = [common.to_json(common.Result("call", "the call", "call", values, (common.Budget(3),)))]
    text = readme.text_of({"machine": machine, "rows": rows})
    assert "| the call | call | 1.0 | 2.0 | - | 9.0 | 2.00 (-) | 4.5 |\n" in text + "\n"
    page = "a\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nb\n"
    new = readme.insert(page, text)
    assert new.startswith("a\n") and new.endswith("\nb\n") and "old" not in new and text in new
    assert readme.insert(new, text) == new
    with pytest.raises(ValueError, match="no <!-- bench"):
        readme.insert("nothing", text)


def test_readme_has_six_rows_of_two_runs():
    readme, common = load_bench("readme"), load_bench("common")
    machine = dict.fromkeys(("cpu", "python", "torch", "commit", "command"), "x")
    tree = {
        "machine": machine,
        "rows": [
            {"key": key, "per": "item", "values": {common.TORCH: 30.0, common.OURS_TORCH: 2.0}}
            for _, file, key in readme._FRONT_ROWS
            if file == "bench.json"
        ],
    }
    dropin = {
        "machine": machine,
        "rows": [
            {"name": name, "per": "token", "torch": 3e-3, "modtree run": 2e-3}
            for _, file, name in readme._FRONT_ROWS
            if file == "bench-dropin.json"
        ],
    }
    text = readme.front_text_of(tree, dropin)
    assert text.count(" | item | 30.0 ns | 2.0 ns | 15 |") == 4
    assert text.count(" | token | 3.0 ms | 2.0 ms | 1.5 |") == 2
    assert text in readme.insert((ROOT / "README.md").read_text(), text, readme._FRONT)
    for mark in (readme._TREE, readme._GROWTH, readme._DROPIN):
        assert "new" in readme.insert((ROOT / "docs/performance.md").read_text(), "new", mark)


def test_unknown_sides_are_refused_by_name():
    for sides in ("floor", "modtree;flax", ";"):
        command = [sys.executable, "-m", "bench", "--only", "growth", "--sides", sides]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER
        )
        assert done.returncode == 2
        assert "'modtree'; 'modtree, torch leaves'; 'torch'" in done.stderr
