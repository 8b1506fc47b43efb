# SPDX-License-Identifier: BSD-3-Clause
"""What writes does not replace what it reads by less, whatever name leads to it."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest
from helpers.command_line import CommandLine
from helpers.implementations import needs_torch

import modtree as mt
from modtree import nn
from modtree.checkpoints import convert

KEYS = [f"layers.{i}.weight" for i in range(4)]


def state_of(value=0.0):
    return {key: mt.full((10,), value + i) for i, key in enumerate(KEYS)}


def files_in(folder):
    return {file: file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}


@pytest.fixture
def run(tmp_path):
    """A training checkpoint."""
    parts = {"model": state_of(), "ema_weights": state_of(7.0), "optimizer": {"lr": 0.1}}
    mt.save(parts, tmp_path / "run.ckpt", format="torch")
    return tmp_path / "run.ckpt"


@pytest.fixture
def folder(tmp_path):
    """A model in shards, with other files beside."""
    made = tmp_path / "hf"
    made.mkdir()
    mt.save_file(state_of(), made / "model.safetensors", max_shard_size=40)
    (made / "config.json").write_text("{}")
    (made / "optimizer.pt").write_bytes(b"its moments")
    return made


def refuses(source, target, root, **how):
    """Refused, and nothing has changed; the same on the command line."""
    before = files_in(root)
    with pytest.raises(mt.CheckpointError, match=r"would lose .*overwrite=True \(--overwrite\)"):
        convert(source, target, **how)
    assert files_in(root) == before


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link", "link to its folder", "object"])
@pytest.mark.parametrize("part", [None, "ema_weights", "model"])
def test_a_part_does_not_replace_the_whole(part, how, run, tmp_path):
    source, target = run, tmp_path / "other.ckpt"
    if how == "symlink":
        target.symlink_to(run)
    elif how == "hard link":
        target.hardlink_to(run)
    elif how == "link to its folder":
        (tmp_path / "link").symlink_to(tmp_path)
        target = tmp_path / "link" / run.name
    else:
        target = run
    if how == "object":
        with open(run, "rb") as source:
            refuses(source, target, tmp_path, at=part)
    else:
        refuses(source, target, tmp_path, at=part)
    convert(run, target, at=part, overwrite=True)
    assert list(mt.load(target)) == KEYS


LOSSES = {
    "only": ({"rename": lambda key: key if key == KEYS[1] else None}, "(not wanted)"),
    "dtype": ({"dtype": "float16"}, "(float16 now)"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (".", "."),
        (".", "model.safetensors"),
        (".", "model.safetensors.index.json"),
        ("model.safetensors.index.json", "model.safetensors"),
        ("model.safetensors", "."),
        (".", "model-00002-of-00004.safetensors"),
    ],
)
def test_fewer_entries_do_not_replace_the_shards_that_are_read(source, target, loss, folder):
    how, words = LOSSES[loss]
    for size in (None, 40):
        refuses(folder / source, folder / target, folder, max_shard_size=size, **how)
    with pytest.raises(mt.CheckpointError) as caught:
        convert(folder / source, folder / target, **how)
    assert words in str(caught.value) and caught.value.file.startswith(str(folder))


@pytest.mark.parametrize("size", [None, 20])
def test_a_shard_does_not_replace_the_others(size, folder):
    shard = folder / "model-00001-of-00004.safetensors"
    refuses(shard, folder / "model.safetensors", folder, max_shard_size=size)


@pytest.mark.parametrize("name", ["config.json", "optimizer.pt"])
def test_other_files_of_the_folder_that_is_read_stay(name, folder):
    with pytest.raises(mt.CheckpointError, match=f"would lose all that is in {name}"):
        convert(folder, folder / name, format="safetensors")
    refuses(folder, folder / name, folder, format="safetensors")


def test_the_optimizer_of_a_trainers_folder_stays(run, tmp_path):
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    mt.save_file(state_of(), folder / "model.safetensors")
    mt.save({"state": {}, "param_groups": []}, folder / "optimizer.pt", format="torch")
    (folder / "trainer_state.json").write_text("{}")
    refuses(folder, folder / "optimizer.pt", folder)
    refuses(folder, folder / "model.safetensors", folder)


def module_of_torch(torch):
    return torch.nn.Linear(2, 2)


def with_an_attribute(torch):
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.scale = torch.ones(3)
    return {"w": parameter}


@needs_torch
@pytest.mark.parametrize(
    ("make", "how", "lost"),
    [
        (module_of_torch, {}, "objects that are neither tensors nor plain"),
        (with_an_attribute, {"format": "safetensors"}, r"'w' \(their attributes\)"),
    ],
)
def test_what_is_beside_the_tensors_is_not_lost(make, how, lost, tmp_path):
    torch = importlib.import_module("torch")
    path = tmp_path / "file.pt"
    torch.save(make(torch), path)
    with pytest.raises(mt.CheckpointError, match=f"would lose {lost}:"):
        convert(path, path, **how)
    refuses(path, path, tmp_path, **how)
    torch.save({"w": torch.ones(2)}, path)
    convert(path, path, **how)


def test_what_loses_nothing_is_written(folder, run):
    convert(folder, folder, rename={"layers.": "blocks."})
    assert len(mt.load_file(folder)) == 4 and not list(folder.glob("model-*"))
    convert(folder, folder, max_shard_size=40)
    convert(folder / "model-00002-of-00004.safetensors", folder / "new.safetensors")
    convert(run, folder.parent / "ema.safetensors", at="ema_weights")
    convert(run, folder.parent / "ema.safetensors", at="ema_weights", dtype="float16")
    assert len(mt.load_file(folder)) == 4 and len(mt.load(run)) == 3


def test_what_is_read_is_not_written_in_place(run):
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="which is being read: name another target"):
            convert(run, run, at="model", atomic=False, overwrite=overwrite)


def test_on_the_command_line(run, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(capsys)
    before = files_in(tmp_path)
    for arguments in (
        ["run.ckpt", "./run.ckpt", "--at", "ema_weights"],
        ["hf", "hf/model.safetensors", "--only", "layers[1]"],
        ["hf", "hf/model.safetensors", "--drop", "layers[1]"],
        ["hf", "hf", "--match", "*.1.*"],
        ["hf", "hf", "--dtype", "float16"],
    ):
        assert "pass --overwrite" in cli.trouble("convert", *arguments)
    assert files_in(tmp_path) == before
    ended = cli("convert", "hf", "hf/model.safetensors", "--only", "layers[1]", "--overwrite")
    assert ended.status == 0 and list(mt.load_file(folder)) == KEYS[1:2]
    assert json.loads((folder / "config.json").read_text()) == {}


# -- tensors that are in the map of a file ---------------------------------------------------------


SAVES = {
    "save_file": mt.save_file,
    "save": mt.save,
    "save of torch's form": lambda obj, path, **how: mt.save(obj, path, format="torch", **how),
}


@pytest.mark.parametrize("save", SAVES)
def test_a_part_of_what_is_mapped_does_not_replace_it(save, run, tmp_path):
    link = tmp_path / "link.ckpt"
    link.symlink_to(run)
    parts = mt.load(run, mmap=True)
    before = files_in(tmp_path)
    for path in (run, link):
        with pytest.raises(mt.CheckpointError, match=r"lose 'ema_weights.*and 2 more \(in .*over"):
            SAVES[save](parts["model"], path)
    assert files_in(tmp_path) == before
    SAVES[save](parts["model"], run, overwrite=True)
    assert list(mt.load_file(run)) == KEYS


def test_entries_of_a_mapped_file_may_get_other_names_and_values(tmp_path):
    path = tmp_path / "a.safetensors"
    mt.save_file(state_of(), path)
    state = mt.load_file(path)
    mt.save_file({f"module.{key}": value for key, value in state.items()}, path)
    state = mt.load_file(path)
    mt.save_file({**state, f"module.{KEYS[0]}": mt.ones(3)}, path)
    model = nn.Linear(2, 2)
    mt.save_file(model, path)
    model.load_state_dict(mt.load_file(path), assign=True)
    with mt.no_grad():
        model.weight.add_(1.0)
    mt.save_file(model, path)
    assert mt.equal(mt.load_file(path)["weight"], model.weight)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {KEYS[0]: state[KEYS[0]]},
        lambda state: {**state, KEYS[0]: state[KEYS[1]]},
        lambda state: {**state, KEYS[0]: state[KEYS[0]][:3]},
        lambda state: [state[key] for key in KEYS[1:]],
    ],
    ids=["without others", "another in its place", "a slice of it", "in a list"],
)
def test_entries_of_a_mapped_file_do_not_get_lost(change, tmp_path):
    path = tmp_path / "a.safetensors"
    mt.save_file(state_of(), path)
    changed = change(mt.load_file(path))
    before = path.read_bytes()
    with pytest.raises(mt.CheckpointError, match=r"would lose '.*overwrite=True"):
        (mt.save_file if isinstance(changed, dict) else mt.save)(changed, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("size", [None, 40])
def test_shards_that_are_mapped_do_not_get_lost(size, folder):
    state = mt.load_file(folder)
    del state[KEYS[2]]
    before = files_in(folder)
    with pytest.raises(mt.CheckpointError, match=rf"would lose '{KEYS[2]}' \(in model-00003-of-"):
        mt.save_file(state, folder, max_shard_size=size)
    assert files_in(folder) == before
    mt.save_file(mt.load_file(folder), folder, max_shard_size=size)
    assert list(mt.load_file(folder)) == KEYS


def test_shards_of_a_save_that_was_killed_are_not_what_is_read(run, tmp_path):
    path = tmp_path / "model.safetensors"
    mt.save_file(state_of(), path, max_shard_size=40)
    os.unlink(f"{path}.index.json")
    mt.save_file({"whole": mt.ones(10), **state_of(5.0)}, tmp_path / "new")
    os.replace(tmp_path / "new", path)
    convert(path, path, rename=[("whole", "all")])
    mt.save_file(mt.load_file(path), path, max_shard_size=40)
    assert set(mt.load_file(tmp_path / "model.safetensors.index.json")) == {"all", *KEYS}


def test_a_drawing_does_not_replace_the_weights_of_its_model(tmp_path):
    model = nn.Linear(2, 2)
    mt.save_file(model, tmp_path / "a.safetensors")
    model.load_state_dict(mt.load_file(tmp_path / "a.safetensors"), assign=True)
    with pytest.raises(mt.CheckpointError, match="would lose 'weight', 'bias'.*another target$"):
        mt.to_svg(model, tmp_path / "a.safetensors")
    assert len(mt.load_file(tmp_path / "a.safetensors")) == 2


def test_a_drawing_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    mt.to_svg(nn.Linear(2, 2), path)
    before = path.read_bytes()

    def fail(old, new):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        mt.to_svg(nn.Linear(3, 3), path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.svg"]
