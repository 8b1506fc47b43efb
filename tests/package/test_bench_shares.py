# SPDX-License-Identifier: BSD-3-Clause
"""Where the instructions of programs go (bench/bench_shares.py), and trees that lists hold."""

from __future__ import annotations

import gc
import shutil
import sys

import pytest
from helpers.bench_modules import bench_on_path, load_bench  # noqa: F401
from helpers.implementations import needs_torch

PART = """\
version: 1
positions: line
events: Ir

ob=(1) /usr/lib/python3.11/lib-dynload/math.cpython-311.so
fl=(1) ???
fn=(1) one
0 10
+1 5
calls=3 0
0 9000
ob=(2) /somewhere/torch/lib/libtorch_cpu.so
fn=(2) two
0 100
cob=(3) /somewhere/modtree/_C.cpython-311-x86_64-linux-gnu.so
cfn=(3) three
calls=1 0
* 7000
ob=(3)
fn=(3)
-2 40

totals: 155
"""


@needs_torch
def test_a_part_is_summed_by_the_kind_of_its_objects():
    found = load_bench("bench_shares").read_part(PART.splitlines())
    assert found == {"Python": 15, "operations": 100, "modtree": 40}


@needs_torch
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/opt/python3.11/bin/python3.11", "Python"),
        ("/opt/lib/libpython3.12.so.1.0", "Python"),
        ("/env/site-packages/modtree/_C.cpython-312-x86_64-linux-gnu.so", "modtree"),
        ("/env/site-packages/torch/lib/libtorch_python.so", "operations"),
        ("/env/site-packages/torch/_C.cpython-311-x86_64-linux-gnu.so", "operations"),
        ("/usr/lib/libc.so.6", "operations"),
    ],
)
def test_objects_have_kinds(path, kind):
    assert load_bench("bench_shares").kind_of(path) == kind


@needs_torch
def test_what_the_sides_differ_by_belongs_to_modules():
    module = load_bench("bench_shares")

    def program(**instructions):
        return {"name": "net", "per": "step", "instructions": instructions}

    row = module.shares(
        program(Python=900, operations=1100, optimizer=500),
        program(Python=200, operations=1000, modtree=50, optimizer=500),
    )
    same = {"operations": 1000, "Python": 200, "optimizer": 500}
    assert row["torch"] == {"modules": 800, **same, "all": 2500}
    assert row["modtree run"] == {"modules": 50, **same, "all": 1750}
    last = module.table([row]).splitlines()[-1]
    assert last == (
        "| net | step | 0.0025 | 32.0% | 40.0% | 8.0% | 20.0% | 0.0018 | 0.70 | 2.9% | 57.1% "
        "| 11.4% | 28.6% |"
    )


@needs_torch
def test_without_valgrind_it_says_so(monkeypatch, capsys):
    module = load_bench("bench_shares")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["bench_shares"])
    assert module.main() == 2
    assert "valgrind is not installed" in capsys.readouterr().err


@pytest.mark.slow(keep=2)
@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [
    "Llama, decoding", "Llama, training", "ViT with an average of its weights", "LoRA on a GPT-2",
    "GAN", "RL actor", "CNN", "GNN",
])  # fmt: skip
def test_programs_do_their_steps(name):
    import torch

    programs = load_bench("real_programs").PROGRAMS
    assert len(programs) == 8
    torch.manual_seed(0)
    program = programs[name]()
    weights = [p for o in program.optimizers for g in o.param_groups for p in g["params"]]
    before = [p.detach().clone() for p in weights]
    program.step()
    program.step()
    changed = [not torch.equal(p, old) for p, old in zip(weights, before, strict=True)]
    assert all(changed)


@needs_torch
def test_single_calls_can_be_made():
    for make in load_bench("real_calls").CALLS.values():
        make().step()


@needs_torch
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_a_program_is_counted():
    (row,) = load_bench("bench_shares").count("modtree run", ["GNN"])
    assert set(row["instructions"]) == {"Python", "operations", "modtree", "optimizer"}
    assert all(n > 1000 for n in row["instructions"].values())


def test_held_trees_have_a_second_holder_of_each_module(ours, monkeypatch):
    common, trees, held = load_bench("common"), load_bench("trees"), load_bench("tree_held")
    side = trees.side(common.OURS if ours.name == "modtree" else common.OURS_TORCH)
    whole = trees.expert_tree
    monkeypatch.setattr(trees, "expert_tree", lambda s: whole(s, blocks=1, experts=2))
    keys = []
    for row in held.held_rows([side]):
        keys.append(row.key)
        if row.key == "experts.modules.held":
            (*_, last) = row.runs[side.name]()
            assert any(type(holder) is list for holder in gc.get_referrers(last))
    walks = ["parameters", "modules", "named_parameters", "named_modules"]
    kinds = ["experts.{}.held", "small.{}.repeated", "small.{}.held"]
    assert keys == [kind.format(walk) for kind in kinds for walk in walks]
