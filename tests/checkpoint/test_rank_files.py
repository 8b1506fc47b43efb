# SPDX-License-Identifier: BSD-3-Clause
"""A file of torch for each rank: put together by what DTensors say, or by rules."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.command_line import CommandLine
from helpers.implementations import HAS_TORCH, needs_torch
from helpers.rank_tensors import distributed_tensors, meshes

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint, verify

torch = importlib.import_module("torch") if HAS_TORCH else None

COLUMN = np.arange(24, dtype=np.float32).reshape(6, 4)  # split in dimension 0
ROW = np.arange(24, dtype=np.float32).reshape(4, 6) + 100  # split in dimension 1
GATED = np.arange(16, dtype=np.float32).reshape(8, 2) + 200  # two blocks, each split
NORM = np.arange(3, dtype=np.float32)
RULES = {"*.column.weight": 0, "*.row.weight": 1, "*.gated.weight": (0, 2)}
OPTIONS = [
    "--join", "*.column.weight=0", "--join", "*.row.weight=1", "--join", "*.gated.weight=0/2"
]  # fmt: skip


def megatron_folder(folder, ranks=2, change=None):
    """Writes a folder of Megatron with tensor-parallel ranks."""
    for rank in range(ranks):
        gate, up = (np.split(half, ranks)[rank] for half in np.split(GATED, 2))
        state = {
            "layers.0.column.weight": np.split(COLUMN, ranks)[rank],
            "layers.0.row.weight": np.split(ROW, ranks, axis=1)[rank],
            "layers.0.gated.weight": np.concatenate([gate, up]),
            "norm.weight": NORM,
        }
        if change is not None:
            change(rank, state)
        tensors = {key: mt.from_numpy(np.array(value)) for key, value in state.items()}
        place = folder / f"mp_rank_{rank:02}"
        place.mkdir(parents=True)
        content = {"model": tensors, "iteration": 7, "checkpoint_version": 3.0}
        mt.save(content, place / "model_optim_rng.pt", format="torch")
    return folder


def check_whole(state):
    assert np.array_equal(state["layers.0.column.weight"].numpy(), COLUMN)
    assert np.array_equal(state["layers.0.row.weight"].numpy(), ROW)
    assert np.array_equal(state["layers.0.gated.weight"].numpy(), GATED)
    assert np.array_equal(state["norm.weight"].numpy(), NORM)


@pytest.mark.parametrize("ranks", [1, 2])
def test_shards_are_put_together_by_rules(ranks, tmp_path):
    folder = megatron_folder(tmp_path / "iter_0000007", ranks)
    check_whole(mt.load_file(folder, join=RULES))
    assert verify(folder, join=RULES) == []
    convert(folder, tmp_path / "out.safetensors", join=RULES)
    check_whole(mt.load_file(tmp_path / "out.safetensors"))
    with open_checkpoint(folder, join=RULES) as checkpoint:
        assert checkpoint.format == "ranks"
        part = checkpoint.part("layers.0.gated.weight", (slice(3, 6), 1))
        assert np.array_equal(part, GATED[3:6, 1])


def test_commands_take_rules(tmp_path, capsys):
    folder = megatron_folder(tmp_path / "iter_0000007")
    command = CommandLine(capsys)
    done = command("inspect", folder, *OPTIONS)
    assert done.status == 0 and "* model               a state dict, 4 tensors" in done.out
    assert command("verify", folder, *OPTIONS).status == 0
    assert command("convert", folder, tmp_path / "out.pt", *OPTIONS).status == 0
    check_whole(mt.load_file(tmp_path / "out.pt"))
    assert "expected GLOB=DIM" in command("inspect", folder, "--join", "weight").err


def test_a_comparison_takes_rules_for_the_side_with_files_of_ranks(tmp_path, capsys):
    folder = megatron_folder(tmp_path / "iter_0000007")
    out = tmp_path / "out.safetensors"
    convert(folder, out, join=RULES)
    command = CommandLine(capsys)
    assert command("diff", folder, out, *OPTIONS).status == 0
    assert command("diff", out, folder, *OPTIONS).status == 0
    assert command("diff", folder, folder, *OPTIONS).status == 0
    assert not mt.compare(mt.load_file(out), folder, join=RULES)
    with pytest.raises(mt.CheckpointError, match="this is one checkpoint already"):
        mt.compare(out, out, join=RULES)
    with pytest.raises(TypeError, match="join is for files, and neither side is a path"):
        mt.compare({}, {}, join=RULES)


def test_without_rules_what_is_missing_is_said(tmp_path):
    folder = megatron_folder(tmp_path / "iter_0000007")
    with pytest.raises(mt.CheckpointError, match="files of 2 ranks, whose tensors do not say how"):
        mt.load_file(folder)
    assert len(mt.load_file(folder / "mp_rank_01" / "model_optim_rng.pt")) == 4


def test_a_tensor_without_a_rule_must_be_the_same_on_all_ranks(tmp_path):
    folder = megatron_folder(tmp_path / "iter_0000007")
    with pytest.raises(mt.CheckpointError, match="values on rank 1 are not those on rank 0"):
        mt.load_file(folder, join={"*.column.weight": 0, "*.row.weight": 1})
    (problem,) = verify(folder, join={"*.column.weight": 0, "*.row.weight": 1})
    assert problem.key == "model.layers.0.gated.weight"


def test_parts_of_different_shapes_without_a_rule_are_reported(tmp_path):
    def change(rank, state):
        state["norm.weight"] = NORM[: 2 + rank]

    folder = megatron_folder(tmp_path / "iter_0000007", change=change)
    state = mt.load_file(folder, join=RULES)
    assert "no rule of join= says how" in str(state["norm.weight"])
    (problem,) = verify(folder, join=RULES)
    assert problem.key == "model.norm.weight"


def test_a_part_that_a_rank_does_not_have_is_reported(tmp_path):
    def change(rank, state):
        if rank:
            del state["layers.0.row.weight"]

    folder = megatron_folder(tmp_path / "iter_0000007", change=change)
    (problem,) = verify(folder, join=RULES)
    assert problem.key == "model.layers.0.row.weight" and "1 of 2 ranks" in problem.message


def test_a_missing_rank_between_others_is_named(tmp_path):
    for rank in (0, 2):
        mt.save({"w": mt.ones(2)}, tmp_path / f"model_rank_{rank}.pt", format="torch")
    with pytest.raises(mt.CheckpointError, match="files of rank 1 are missing"):
        mt.load_file(tmp_path, join={"w": 0})


@pytest.mark.parametrize(
    ("rules", "error", "reason"),
    [
        ({"*.weight": 5}, mt.CheckpointError, "puts it together in dimension 5"),
        ({"*.column.weight": (0, 2)}, mt.CheckpointError, "dimension 0, of 2 blocks, and ranks"),
        ({"*": "0"}, TypeError, "to a dimension"),
        (["*"], TypeError, "join maps patterns"),
        ({"*": (0, 0)}, ValueError, "0 blocks"),
    ],
)
def test_rules_that_do_not_fit(rules, error, reason, tmp_path):
    folder = megatron_folder(tmp_path / "iter_0000007")
    with pytest.raises(error, match=reason):
        open_checkpoint(folder, join=rules)


def test_rules_are_for_files_of_ranks_only(tmp_path):
    mt.save_file({"a": mt.ones(2)}, tmp_path / "a.safetensors")
    with pytest.raises(mt.CheckpointError, match="this is one checkpoint already"):
        mt.load_file(tmp_path / "a.safetensors", join={})
    with pytest.raises(mt.CheckpointError, match="this is one checkpoint already"):
        verify(tmp_path / "a.safetensors", join={})


def test_stages_of_a_pipeline_are_parts(tmp_path):
    for rank, stage in ((0, 0), (0, 1), (1, 0), (1, 1)):
        folder = tmp_path / f"mp_rank_0{rank}_00{stage}"
        folder.mkdir()
        state = {"model": {f"l{stage}.w": mt.ones(2, 3) * rank, "n": mt.ones(2)}, "iteration": 5}
        mt.save(state, folder / "model_optim_rng.pt", format="torch")
    for stage in range(2):
        state = mt.load_file(tmp_path, at=f"model_optim_rng.{stage}", join={"*.w": 0, "*": None})
        assert state[f"model.l{stage}.w"].tolist() == [[0.0] * 3] * 2 + [[1.0] * 3] * 2
        assert state["model.n"].shape == (2,) and state["iteration"] == 5


def test_numbered_files_of_ranks(tmp_path):
    for rank, half in enumerate(np.split(COLUMN, 2)):
        state = {"w": mt.from_numpy(half.copy())}
        mt.save(state, tmp_path / f"consolidated.0{rank}.pth", format="torch")
    assert np.array_equal(mt.load_file(tmp_path, join={"w": 0})["w"].numpy(), COLUMN)


# -- made by torch ---------------------------------------------------------------------------------


def _save_ranks(rank, folder):
    import torch.distributed as dist
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor import Shard as LocalShard
    from torch.distributed._shard.sharded_tensor import init_from_local_shards
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    line, grid = meshes(rank, folder)
    state = distributed_tensors(line, grid)
    whole = state["plain"]
    torch.manual_seed(0)
    model = fully_shard(torch.nn.Linear(3, 5), mesh=line)
    part = whole[rank * 2 : rank * 2 + 2].clone()
    place = ShardMetadata([rank * 2, 0], list(part.shape), f"rank:{rank}/cpu")
    state["from_the_end"] = distribute_tensor(whole, grid, [Replicate(), Shard(-1)])
    state["of_two"] = distribute_tensor(whole, grid["tp"], [Shard(0)])
    state["sharded"] = init_from_local_shards([LocalShard(part, place)], 7, 5)
    sums = DTensor.from_local(whole, line, [Partial()], run_check=False)
    torch.save({**state, "step": 5}, f"{folder}/parts/model_rank_{rank}.pt")
    torch.save({"model": model.state_dict()}, f"{folder}/fsdp/model_rank{rank}.pt")
    torch.save({"sums": sums, "rows": state["rows"]}, f"{folder}/sums/model_rank_{rank}.pt")
    if not rank:
        torch.manual_seed(0)
        torch.save(torch.nn.Linear(3, 5).state_dict(), f"{folder}/whole.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for name in ("parts", "fsdp", "sums"):
        (folder / name).mkdir()
    torch.multiprocessing.spawn(_save_ranks, (str(folder),), nprocs=4)
    return folder


@needs_torch
@pytest.mark.slow
def test_parts_say_how_they_are_put_together(ranks, tmp_path):
    state = mt.load_file(ranks / "parts")
    assert state.pop("step") == 5 and len(state) == 10
    for key, value in state.items():
        assert value.numpy().tolist() == np.arange(35.0).reshape(7, 5).tolist(), key
    assert verify(ranks / "parts") == []
    convert(ranks / "parts", tmp_path / "out.safetensors")
    assert mt.load_file(tmp_path / "out.safetensors")["grid"].shape == (7, 5)


@needs_torch
@pytest.mark.slow
def test_files_of_fully_sharded_models(ranks):
    state, whole = mt.load_file(ranks / "fsdp"), mt.load_file(ranks / "whole.pt")
    assert all((state[key] == whole[key]).all() for key in ("weight", "bias"))


@needs_torch
@pytest.mark.slow
def test_parts_that_cannot_be_put_together_say_why(ranks):
    state = mt.load_file(ranks / "sums")
    assert "ranks have partial sums of it" in str(state["sums"]) and state["rows"].shape == (7, 5)
    (problem,) = verify(ranks / "sums")
    assert problem.key == "sums" and "partial sums" in problem.message
    assert problem.kind == "not read"


@needs_torch
@pytest.mark.slow
def test_a_missing_rank_is_named(ranks, tmp_path):
    for rank in (0, 1, 3):
        name = f"model_rank_{rank}.pt"
        (tmp_path / name).write_bytes((ranks / "parts" / name).read_bytes())
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.array("copies").shape == checkpoint.array("of_two").shape == (7, 5)
        with pytest.raises(mt.CheckpointError, match="in no file; files of rank 2 are missing"):
            checkpoint.array("rows")


@needs_torch
def test_shards_in_strides_say_why(tmp_path):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    for rank in range(4):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        try:
            mesh = DeviceMesh("cpu", torch.arange(4).reshape(2, 2))
            places = [_StridedShard(0, split_factor=2), Shard(0)]
            value = DTensor.from_local(torch.ones(2, 3), mesh, places, run_check=False)
            torch.save({"w": value, "n": torch.ones(2)}, tmp_path / f"model_rank_{rank}.pt")
        finally:
            torch.distributed.destroy_process_group()
    state = mt.load_file(tmp_path)
    assert "parts of a tensor: " in str(state["w"]) and state["n"].tolist() == [1, 1]
    (problem,) = verify(tmp_path)
    assert (problem.kind, problem.key) == ("not read", "w")
