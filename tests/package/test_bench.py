# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark harness: its trees are what they claim to be, and its arithmetic is right. No test
looks at a time.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

if not (ROOT / "bench").is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture(autouse=True)
def _bench_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def load(name):
    return importlib.import_module(f"bench.{name}")


@pytest.fixture
def side(impl):
    common = load("common")
    names = {"modtree": common.OURS, "modtree-torch": common.OURS_TORCH, "torch": common.TORCH}
    return load("trees").side(names[impl.name])


def test_small_expert_tree_has_the_names_of_its_parts(side):
    m = load("trees").expert_tree(side, blocks=2, experts=3)
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
    common, trees = load("common"), load("trees")
    s = trees.side(common.OURS if ours.name == "modtree" else common.OURS_TORCH)
    leaf = s.parameter()
    m = trees.expert_tree(s, iter(lambda: leaf, None))
    assert sum(1 for _ in m.modules()) == 15_862
    assert sum(1 for _ in m.named_parameters(remove_duplicate=False)) == 47_092


def test_resnet50_shape(side):
    m = load("trees").resnet50(side)
    counts = [sum(1 for _ in walk()) for walk in (m.modules, m.parameters, m.buffers)]
    assert counts == [151, 161, 159]
    assert len(m.state_dict()) == 320


def test_chain(side):
    m = load("trees").chain(side, 50)
    assert sum(1 for _ in m.modules()) == 50
    assert [n for n, _ in m.named_parameters()][-1] == "child." * 49 + "weight"


def test_plain_python_trees_have_no_library():
    trees = load("trees")
    m = trees.expert_tree(trees.side(load("common").FLOOR), blocks=1, experts=2)
    assert m.blocks.modules[0].experts.modules[1].w3.shape == trees.SHAPE


def test_nested_dicts_hold_every_array_once():
    arrays = list(range(2 * (4 + 3 * 3)))
    nested = load("trees").nested_dicts(iter(arrays), blocks=2, experts=3)

    def leaves(value):
        for item in value.values():
            yield from leaves(item) if isinstance(item, dict) else (item,)

    assert list(leaves(nested)) == arrays


def test_unrolled_runs_the_statement_as_often_as_it_says():
    seen = []
    load("common").unrolled("f(1)", copies=3, rounds=4, f=seen.append)()
    assert seen == [1] * 12


def test_time_row_counts_items_and_reports_what_fails():
    common = load("common")

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
    common = load("common")
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


def test_subtract_leaves_what_is_on_top():
    common = load("common")
    base = common.Result("a", "a", "call", {common.OURS: 40.0, common.TORCH: 500.0})
    more = common.Result(
        "b", "b", "call", {common.FLOOR: 1.0, common.OURS: 100.0, common.TORCH: 900.0}
    )
    common.subtract(more, base)
    assert more.values == {common.OURS: 60.0, common.TORCH: 400.0}


def record(ours, floor):
    common = load("common")
    result = common.Result("walk", "walk", "item", {common.OURS: ours, common.FLOOR: floor})
    return {"rows": [common.to_json(result)]}


@pytest.mark.parametrize(
    ("after", "slower"),
    [((20.0, 10.0), 0), ((40.0, 20.0), 0), ((30.0, 10.0), 1), ((10.0, 10.0), 0)],
    ids=["same", "slower machine", "slower", "faster"],
)
def test_compare_takes_the_machine_out(after, slower):
    compare = load("compare")
    text, count = compare.compare(record(20.0, 10.0), record(*after), 0.25)
    assert count == slower
    assert "| walk | modtree |" in text


def test_growth_measures_each_shape_and_operation(side):
    growth = load("growth")
    points = growth.measure([side], entries=(300, 900), seconds=60.0)
    seen = {(p["shape"], p["operation"]) for p in points}
    assert seen == {(s, o) for s in growth.SHAPES for o in ("load_state_dict", "named_parameters")}
    assert len(points) == 8
    assert all(p["ns"] > 0 for p in points)
    assert growth.table(points).count("\n") == 5


def test_every_row_runs_on_a_small_tree(side):
    """Each row's functions, once, on a tree of two blocks: what the table times also works."""
    bench_tree = load("bench_tree")
    trees = load("trees")
    w = bench_tree.Walked("small", lambda s: trees.expert_tree(s, blocks=2, experts=2), [side])
    rows = [
        *bench_tree.walks(w, None),
        *bench_tree.loads(w),
        *bench_tree.whole(w),
        *bench_tree.copies(w),
    ]
    for row in rows:
        for name, run in row.runs.items():
            setup = row.setups.get(name)
            result = run(*(() if setup is None else (setup(),)))
            if isinstance(result, list | dict) and row.per in ("item", "entry", "tensor"):
                assert len(result) == row.items, (row.key, name)


def test_readme_table_goes_between_its_marks():
    readme = load("readme")
    machine = dict.fromkeys(("cpu", "python", "numpy", "torch", "commit", "command"), "x")
    common = load("common")
    values = {common.FLOOR: 1.0, common.OURS: 2.0, common.TORCH: 9.0}
    rows = [common.to_json(common.Result("call", "the call", "call", values))]
    text = readme.text_of({"machine": machine, "rows": rows})
    assert "| the call | call | 1.0 | 2.0 | - | 9.0 | 4.5 |" in text
    page = "a\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nb\n"
    new = readme.insert(page, text)
    assert new.startswith("a\n") and new.endswith("\nb\n") and "old" not in new and text in new
    assert readme.insert(new, text) == new
    with pytest.raises(ValueError, match="no <!-- bench"):
        readme.insert("nothing", text)
