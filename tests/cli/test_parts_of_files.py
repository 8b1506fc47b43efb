# SPDX-License-Identifier: BSD-3-Clause
"""Which part of a file or folder is the model, and that no other part goes unnamed."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from helpers.implementations import needs_torch

import modtree as mt
from modtree import nn, optim

NET = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
SD, ONE = NET.state_dict(), nn.Linear(2, 2).state_dict()
OPTIMIZER = optim.AdamW(NET.parameters(), lr=0.001)
NET(mt.ones(1, 3)).sum().backward()
OPTIMIZER.step()
OSD = OPTIMIZER.state_dict()
RANDOM = mt.zeros(16, dtype=mt.uint8)
KERNEL = {"kernel": mt.ones(2, 2)}

#: What a file holds, and under which name the model is, or a list of those to choose from.
FILES = {
    "net": ({"net": SD, "optimizer": OSD, "epoch": 3}, "net"),
    "one layer": ({"net": ONE, "optimizer": OSD}, "net"),
    "without versions": ({"net": dict(ONE), "epoch": 3}, "net"),
    "averages": ({"params": SD, "params_ema": SD}, ["params", "params_ema"]),
    "two nets": ({"generator": SD, "discriminator": ONE, "opt_g": OSD, "step": 3},
                 ["generator", "discriminator"]),
    "teacher": ({"student": SD, "teacher": SD, "center": mt.ones(3)}, ["student", "teacher"]),
    "deeper": ({"trainer": {"model": SD, "optimizer": OSD}, "epoch": 3}, "trainer.model"),
    "two deeper": ({"model": {"net": SD, "ema": SD}}, ["model.net", "model.ema"]),
    "a tuple": ((SD, OSD, 3), "0"),
    "a list": ([SD, ONE], ["0", "1"]),
    "no model": ({"model": None, "ema": SD}, "ema"),
    "a usual name": ({"model": SD, "ema": SD, "optimizer": OSD}, "model"),
    "tensors beside": ({"net": SD, "queue": mt.ones(3), "loss": mt.tensor(0.5)}, "net"),
    "random states": ({"network": SD, "rng_state": RANDOM, "cuda_rng": [RANDOM]}, "network"),
    "a shadow": ({"net": SD, "ema": {"decay": 0.9, "shadow": [mt.ones(2)]}}, "net"),
    "moments": ({"params": {"a": KERNEL}, "opt_state": {"mu": {"a": KERNEL}}}, "params"),
    "a tree": ({"a": KERNEL, "b": {"c": KERNEL}}, ""),
    "a tree in a dict": ({"params": {"a": KERNEL, "b": KERNEL}, "step": 3}, "params"),
    "an optimizer": (OSD, ""),
    "an optimizer alone": ({"optimizer": OSD, "epoch": 3}, ""),
    "extra state": (OrderedDict({"w.a": mt.ones(1), "_extra_state": {"a.b": mt.ones(1)}}), ""),
}  # fmt: skip


@pytest.fixture(params=["torch", "pickle"])
def save(request, tmp_path):
    """Writes an object, and returns the path."""

    def write(obj):
        path = tmp_path / "file.pt"
        if request.param == "torch":
            mt.save(obj, path, format="torch")
        else:
            mt.save(obj, path)
        return path

    return write


@pytest.mark.parametrize("kind", FILES)
def test_the_only_state_dict_is_the_model(kind, save, cli):
    obj, expected = FILES[kind]
    path = save(obj)
    (answer,) = json.loads(cli("inspect", path, "--json").out)
    if isinstance(expected, str):
        assert answer["choices"] == [] and answer["entries"]
        with mt.checkpoints.open_checkpoint(path) as checkpoint:
            assert checkpoint.found_under == expected
        return
    assert answer["choices"] == expected and answer["entries"] == []
    for arguments in (["convert", path, "new.safetensors"], ["diff", path, path]):
        message = cli.trouble(*arguments)
        assert f"several state dicts, {', '.join(expected)}: name one with --at" in message
    with pytest.raises(mt.CheckpointError, match="several state dicts"):
        mt.load_file(path)
    for name in expected:
        assert mt.load_file(path, at=name)
    shown = cli("inspect", path).lines
    assert shown[0].endswith(f", {len(expected)} state dicts")
    assert shown[-1] == f"state dicts: {', '.join(expected)}; --at shows one of them"
    assert cli("verify", path).status == 0
    assert cli("verify", path, "--finite").lines[0].startswith("not checked: ")


def test_momenta_beside_the_tensors_of_a_state_dict_are_not_its_entries(save, cli):
    path = save({**SD, "optimizer": OSD, "epoch": 3})
    ended = cli("convert", path, "new.safetensors")
    assert ended.lines[1] == "left out, beside the state dict: optimizer"
    assert list(mt.load_file(path)) == [*SD, "epoch"]
    assert "  optimizer  an optimizer: 1 group" in cli("inspect", path).out


def test_what_is_not_taken_is_listed_at_each_level(save, cli):
    path = save({"trainer": {"model": SD, "optimizer": OSD}, "epoch": 3})
    (line,) = cli("convert", path, "new.safetensors").lines[1:]
    assert line == "left out, beside 'trainer.model': epoch, trainer.optimizer"
    note = "note: values not looked at: epoch, trainer.optimizer"
    assert note in cli("verify", path, "--finite").lines


# -- places ----------------------------------------------------------------------------------------


def test_a_module_without_tensors_may_stand_at_any_number_of_places(tmp_path, cli):
    relu = nn.ReLU()
    mt.save(nn.Sequential(nn.Linear(1, 1), *[relu] * 300), tmp_path / "net.pt")
    assert list(mt.load_file(tmp_path / "net.pt")) == ["0.weight", "0.bias"]
    assert cli("verify", "net.pt").status == 0


def test_so_may_one_with_tensors(tmp_path):
    mt.save(nn.Sequential(*[nn.Linear(1, 1)] * 100), tmp_path / "net.pt")
    read = mt.load_file(tmp_path / "net.pt")
    assert len(read) == 200 and read["99.bias"] is read["0.bias"]


def test_a_deep_module_is_read(tmp_path):
    deep = nn.Linear(1, 1)
    for _ in range(100):
        deep = nn.Sequential(deep)
    mt.save(deep, tmp_path / "net.pt")
    assert len(mt.load_file(tmp_path / "net.pt")) == 2


# -- arrays ----------------------------------------------------------------------------------------

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def _of_torch(obj, path, torch):
    torch.save(obj, path)


def _of_pickle(obj, path, torch):
    path.write_bytes(pickle.dumps(obj))


@pytest.mark.parametrize("write", [_of_torch, _of_pickle])
def test_arrays_are_tensors(write, tmp_path, cli, torch):
    path = tmp_path / "arrays.pt"
    state = {"w": ARRAY, "turned": ARRAY.T, "big": ARRAY.astype(">f4"), "tie": ARRAY}
    write({**state, "rate": np.float32(0.5)}, path, torch)
    assert "  w       [2, 3]  float32  24 B" in cli("inspect", path).lines
    for target in ("new.safetensors", "new.pt"):
        assert cli("convert", path, target).status == 0
        for file in (path, target):
            read = mt.load_file(file)
            assert read["w"].tolist() == read["big"].tolist() == ARRAY.tolist()
            assert read["turned"].tolist() == ARRAY.T.tolist() and read["tie"] is read["w"]
        assert mt.load_file(target)["rate"] == 0.5
    assert cli("verify", path, "--finite").status == 0


def test_arrays_in_a_training_checkpoint(tmp_path):
    path = tmp_path / "run.pkl"
    path.write_bytes(pickle.dumps({"net": {"a.w": ARRAY}, "losses": np.ones(9), "epoch": 3}))
    with mt.checkpoints.open_checkpoint(path) as checkpoint:
        assert checkpoint.found_under == "net" and checkpoint.left_out == ("losses", "epoch")
        assert type(checkpoint.contents()["losses"]) is np.ndarray


# -- folders ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, cli):
    """Makes a folder of files by their names: state dicts of safetensors, and others of torch."""

    def make(**files):
        for name, content in files.items():
            path = tmp_path / "folder" / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".safetensors":
                mt.save_file(content, path)
            elif isinstance(content, str):
                path.write_text(content)
            else:
                mt.save(content, path, format="torch")
        return "folder"

    return make


def test_what_lies_beside_the_model_is_named(folder, cli):
    path = folder(
        model_dot_safetensors=SD,
        model_1_dot_safetensors=ONE,
        optimizer_dot_bin=OSD,
        random_states_0_dot_pkl={"cpu": RANDOM},
        **{"2_Dense__model_dot_safetensors": ONE},
    )
    names = "model_1.safetensors, optimizer.bin, random_states_0.pkl, 2_Dense/"
    assert cli("inspect", path).lines[1] == f"passed over: {names}; --at shows one"
    assert cli("convert", path, "new.safetensors").lines[1] == f"left out, other files: {names}"
    assert f"note: not looked at: {names}" in cli("verify", path).lines
    assert f"not compared, of a: {names}" in cli("diff", path, "new.safetensors").out
    assert list(mt.load_file(path, at="model_1")) == list(ONE)
    assert len(mt.load_file(path, at="optimizer.state.0")) == 3
    assert list(mt.load_file(path, at="2_Dense")) == list(ONE)


def test_a_file_beside_shards_is_read_and_the_index_named(folder, cli, tmp_path):
    mt.save_file(SD, tmp_path / "model.safetensors", max_shard_size=60)
    path = folder(config_dot_json="{}", model_dot_safetensors=SD)
    for file in tmp_path.glob("model*"):
        file.rename(tmp_path / path / file.name)
    lines = cli("inspect", path).lines
    assert lines[1] == "passed over: model.safetensors.index.json; --at shows one"


def test_a_folder_of_folders_asks_for_one(folder, cli):
    path = folder(
        model_index_dot_json="{}",
        unet__diffusion_pytorch_model_dot_safetensors=SD,
        vae__diffusion_pytorch_model_dot_safetensors=ONE,
    )
    assert cli("inspect", path).lines == [
        "folder: folder, 2 state dicts",
        "  unet  a state dict, 4 tensors, 104 B",
        "  vae   a state dict, 2 tensors, 24 B",
        "state dicts: unet, vae; --at shows one of them",
    ]
    assert "several state dicts, unet, vae" in cli.trouble("convert", path, "new.safetensors")
    assert list(mt.load_file(path, at="vae")) == list(ONE)


def test_the_only_state_dict_of_a_folder_is_the_model(folder, cli):
    path = folder(weights_dot_pt=SD, optimizer_dot_pt=OSD, scheduler_dot_pt={"last_epoch": 3})
    ended = cli("convert", path, "new.safetensors")
    assert ended.lines[1] == "left out, beside 'weights': optimizer, scheduler"
    assert cli("inspect", path).lines[3].startswith("* weights    a state dict")


def test_checkpoints_in_the_folder_of_a_run(folder, cli):
    path = folder(
        model_dot_safetensors=SD,
        trainer_state_dot_json='{"global_step": 5}',
        **{"checkpoint-1000__model_dot_safetensors": ONE},
    )
    assert cli("inspect", path).lines[1] == "passed over: checkpoint-1000/; --at shows one"
    assert list(mt.load_file(path, at="checkpoint-1000")) == list(ONE)


def test_the_cache_of_a_hub_leads_to_its_snapshot(folder, cli):
    path = folder(refs__main="abc\n", snapshots__abc__model_dot_safetensors=SD,
                  snapshots__aaa__model_dot_safetensors=ONE)  # fmt: skip
    assert list(mt.load_file(path)) == list(SD)
    assert "folder/snapshots/abc/model.safetensors" in cli("inspect", path).lines[0]


@needs_torch
@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_values_of_a_distributed_checkpoint_are_left_out_with_a_line(tmp_path, cli):
    import torch
    import torch.distributed.checkpoint as dcp

    state = {"w.a": torch.ones(2), "note": b"abc", "text": "hello", "number": 3}
    dcp.save(state, checkpoint_id=tmp_path / "step", no_dist=True)
    ended = cli("convert", "step", "new.safetensors")
    assert ended.status == 0
    assert ended.lines[1:] == ["left out, not tensors, nor JSON: note"]
    read = mt.load_file("new.safetensors")
    assert read["text"] == "hello" and read["number"] == 3
