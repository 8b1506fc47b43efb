# SPDX-License-Identifier: BSD-3-Clause
"""Folders of torch.distributed.checkpoint: global tensors of the chunks in the files of ranks."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.command_line import CommandLine
from helpers.foreign_pickles import distributed_folder
from helpers.implementations import HAS_TORCH, needs_torch
from helpers.rank_tensors import distributed_tensors, meshes

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint, verify

torch = importlib.import_module("torch") if HAS_TORCH else None

W = np.arange(35, dtype=np.float32).reshape(7, 5)
ROWS = [((0, 0), (4, 5)), ((4, 0), (3, 5))]
COLUMNS = [((0, 0), (7, 3)), ((0, 3), (7, 2))]
GRID = [((a, b), (n, m)) for a, n in ((0, 4), (4, 3)) for b, m in ((0, 2), (2, 3))]


def folder_of_two_ranks(tmp_path, change=None):
    tensors = {
        "model/w": (W, ROWS),
        "model/v": (W, COLUMNS),
        "model/g": (W, GRID),
        "model/n": (np.array(7), [((), ())]),
        "model/e": (np.zeros((0, 3), np.float32), [((0, 0), (0, 3))]),
    }
    return distributed_folder(tmp_path / "run", tensors, {"epoch": 3}, change)


def test_chunks_are_put_together(tmp_path):
    path = folder_of_two_ranks(tmp_path)
    state = mt.load_file(path)
    assert list(state) == ["w", "v", "g", "n", "e"]
    for key in "wvg":
        assert np.array_equal(state[key].numpy(), W)
    assert state["n"].item() == 7 and state["e"].shape == (0, 3)
    with open_checkpoint(path / ".metadata") as checkpoint:
        assert checkpoint.format == "distributed" and list(checkpoint.left_out) == ["epoch"]
        entry = checkpoint.entries["v"]
        assert entry.shape == (7, 5) and [f[-12:] for f in entry.files] == [
            "__0_0.distcp",
            "__1_0.distcp",
        ]
        assert b"".join(map(bytes, checkpoint.chunks("v", 40))) == W.tobytes()
    assert mt.load(path)["epoch"] == 3
    assert verify(path) == []


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        slice(2, 6),
        (slice(1, 3), slice(2, 5)),
        (..., 4),
        (slice(None, None, 2), 1),
        (slice(None, None, -1), slice(3, 3)),
        (2, 3),
    ],
)
@pytest.mark.parametrize("key", ["w", "v", "g"])
def test_a_part_is_what_numpy_gives(key, index, tmp_path):
    with open_checkpoint(folder_of_two_ranks(tmp_path)) as checkpoint:
        part = checkpoint.part(key, index)
        assert np.array_equal(part, W[index]) and np.shape(part) == W[index].shape
        assert checkpoint.part("n", ()) == 7


def test_a_part_reads_only_the_files_that_have_it(tmp_path):
    path = folder_of_two_ranks(tmp_path)
    (path / "__1_0.distcp").unlink()
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(checkpoint.part("w", slice(1, 4)), W[1:4])
        with pytest.raises(mt.CheckpointError, match="__1_0.distcp.*the file is not there"):
            checkpoint.part("w", slice(1, 5))
    assert {problem.key for problem in verify(path)} == {"model/w", "model/v", "model/g"}


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_it_is_converted(ending, tmp_path):
    convert(folder_of_two_ranks(tmp_path), tmp_path / f"out.{ending}")
    state = mt.load_file(tmp_path / f"out.{ending}")
    assert np.array_equal(state["g"].numpy(), W) and state["n"].item() == 7


def drop_chunk(parts):
    parts["state_dict_metadata"]["model/w"].state["chunks"].pop()


def drop_place(parts):
    index = next(i for i in parts["storage_data"] if i.state["fqn"] == "model/w")
    del parts["storage_data"][index]


def repeat_chunk(parts):
    chunks = parts["state_dict_metadata"]["model/w"].state["chunks"]
    chunks.append(chunks[0])


def lengthen_shape(parts):
    parts["state_dict_metadata"]["model/w"].state["size"].args = ((9, 5),)


def exchange_places(parts):
    first, *_, last = [i for i in parts["storage_data"] if i.state["fqn"] in ("model/w", "model/v")]
    storage = parts["storage_data"]
    storage[first], storage[last] = storage[last], storage[first]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop_chunk, "do not cover it: 15 of 35 elements are in no file"),
        (drop_place, "do not cover it: 20 of 35 elements are in no file"),
        (repeat_chunk, "two of its pieces overlap"),
        (lengthen_shape, "10 of 45 elements are in no file"),
        (exchange_places, "a piece of it is to have the shape"),
    ],
)
def test_what_is_missing_is_said(change, reason, tmp_path):
    path = folder_of_two_ranks(tmp_path, change)
    with pytest.raises(mt.CheckpointError, match=reason):
        mt.load_file(path)
    assert reason in "\n".join(problem.message for problem in verify(path))


@pytest.mark.parametrize(
    "name", ["../outside.distcp", "/etc/passwd", "", "..", "a/../../x", "C:\\x", 3, None]
)
def test_no_file_outside_of_the_folder_is_named(name, tmp_path):
    def change(parts):
        for place in parts["storage_data"].values():
            place.state["relative_path"] = name

    path = folder_of_two_ranks(tmp_path, change)
    with pytest.raises(mt.CheckpointError, match="the .metadata names the file"):
        open_checkpoint(path)
    (problem,) = verify(path)
    assert problem.kind == "damaged"


def test_a_folder_without_its_metadata_says_so(tmp_path):
    path = folder_of_two_ranks(tmp_path)
    (path / ".metadata").unlink()
    with pytest.raises(mt.CheckpointError, match=".metadata: the file is not there"):
        open_checkpoint(path)


def test_other_files_of_that_name_keep_nobody_from_a_model(tmp_path):
    (tmp_path / ".metadata").write_text("of another program")
    mt.save_file({"a": mt.ones(2)}, tmp_path / "model.safetensors")
    assert list(mt.load_file(tmp_path)) == ["a"]


def test_values_that_were_changed_are_found_by_their_checksum(tmp_path):
    path = folder_of_two_ranks(tmp_path)
    data = bytearray((path / "__0_0.distcp").read_bytes())
    at = data.index(W[1].tobytes())
    data[at] ^= 1
    (path / "__0_0.distcp").write_bytes(data)
    assert any("Bad CRC-32" in problem.message for problem in verify(path))
    with pytest.raises(mt.CheckpointError, match="Bad CRC-32"):
        convert(path, tmp_path / "out.safetensors")


def test_inspect_shows_in_which_files_a_tensor_is(tmp_path, capsys):
    done = CommandLine(capsys)("inspect", folder_of_two_ranks(tmp_path))
    assert done.status == 0 and "in __0_0.distcp, __1_0.distcp" in done.out


# -- made by torch ---------------------------------------------------------------------------------


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_one_process(tmp_path, capsys):
    import torch.distributed.checkpoint as dcp

    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    half = torch.ones(3, dtype=torch.bfloat16)
    run = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    run |= {"epoch": 3, "list": [1, half], "flag": torch.tensor([True, False])}
    dcp.save(run, checkpoint_id=tmp_path / "run", no_dist=True)
    state = mt.load_file(tmp_path / "run")
    assert state.keys() == run["model"].keys()
    for key, value in run["model"].items():
        assert np.array_equal(state[key].numpy(), value.numpy())
    whole = mt.load(tmp_path / "run")
    assert whole["epoch"] == 3 and whole["list"][0] == 1 and whole["flag"].tolist() == [True, False]
    assert whole["optimizer"]["param_groups"][0]["lr"] == 0.001
    assert verify(tmp_path / "run", model) == []
    moments = mt.load_file(tmp_path / "run", at="optimizer.state")
    assert moments["0.exp_avg"].shape == (3, 2)
    done = CommandLine(capsys)("inspect", tmp_path / "run")
    assert "an optimizer: 1 group, state of 4 parameters, lr 0.001, step 1" in done.out


def _save_ranks(rank, folder):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    state = {**distributed_tensors(*meshes(rank, folder)), "step": 5}
    dcp.save(state, checkpoint_id=f"{folder}/dcp")
    torch.save(state, f"{folder}/ranks/model_rank_{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("four")
    (folder / "ranks").mkdir()
    torch.multiprocessing.spawn(_save_ranks, (str(folder),), nprocs=4)
    return folder


@needs_torch
@pytest.mark.slow
def test_a_folder_of_four_ranks(ranks):
    state = mt.load_file(ranks / "dcp")
    assert len(state) == 8 and state["step"] == 5
    for key, value in state.items():
        if key != "step":
            assert np.array_equal(value.numpy(), W), key
    assert verify(ranks / "dcp") == []
