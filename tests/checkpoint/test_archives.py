# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint inside a zip or tar archive is read in place."""

from __future__ import annotations

import io
import tarfile
import zipfile

import numpy as np
import pytest
from helpers.command_line import CommandLine
from helpers.implementations import needs_torch
from helpers.needs import needs

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint, verify

STATE = {"a.w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32)}


def safetensors():
    mt.save_file(STATE, "written.safetensors")
    with open("written.safetensors", "rb") as file:
        return file.read()


def of_torch():
    file = io.BytesIO()
    state = {key: mt.from_numpy(value) for key, value in STATE.items()}
    mt.save({"state_dict": state, "epoch": 3}, file, format="torch")
    return file.getvalue()


def in_zip(path, files, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def in_deflated_zip(path, files):
    in_zip(path, files, zipfile.ZIP_DEFLATED)


def in_tar(path, files, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def in_packed_tar(path, files):
    in_tar(path, files, "w:gz")


@pytest.fixture(params=[in_zip, in_deflated_zip, in_tar, in_packed_tar])
def archive(request, tmp_path, monkeypatch):
    """Writes an archive with these files."""
    monkeypatch.chdir(tmp_path)
    return lambda files: request.param("model.nemo", files)


@pytest.mark.parametrize("make", [safetensors, of_torch])
def test_the_one_checkpoint_is_read(make, archive):
    archive({"config.yaml": b"a: 1", "model_weights.ckpt": make()})
    with open("model.nemo", "rb") as file:
        for source in ("model.nemo", file, file.read()):
            read = mt.load_file(source)
            assert all(read[key].tolist() == value.tolist() for key, value in STATE.items())
    assert verify("model.nemo", finite=True) == []
    convert("model.nemo", "new.safetensors")
    assert list(mt.load_file("new.safetensors")) == list(STATE)


def test_several_are_asked_for(archive, capsys):
    archive({"x/a.safetensors": safetensors(), "x/b.pt": of_torch(), "readme": b"words"})
    cli = CommandLine(capsys)
    for command in (["inspect", "model.nemo"], ["convert", "model.nemo", "new.pt"]):
        assert "several checkpoints; there is x/a.safetensors, x/b.pt: name" in cli.trouble(
            *command
        )
        assert cli(*command, "--inside", "b.pt").status == 0
    assert cli("verify", "model.nemo", "--inside", "x/a.safetensors").status == 0
    assert cli("diff", "model.nemo", "model.nemo", "--inside", "a.safetensors").status == 0
    assert "no checkpoint 'c'; there is" in cli.trouble("inspect", "model.nemo", "--inside", "c")
    assert list(mt.load_file("model.nemo", inside="b.pt")) == list(STATE)
    with open_checkpoint("model.nemo", "epoch", inside="b.pt") as checkpoint:
        assert checkpoint.values == {"epoch": 3}
    assert "not an archive" in cli.trouble("inspect", "written.safetensors", "--inside", "x")


def test_a_usual_name_counts_before_others_which_are_named(archive, capsys):
    archive({"x/model.safetensors": safetensors(), "x/optimizer.bin": of_torch()})
    lines = CommandLine(capsys)("inspect", "model.nemo").lines
    assert lines[0].startswith("model.nemo:x/model.safetensors: safetensors, 2 entries")
    assert lines[1] == "passed over: x/optimizer.bin; --inside shows one"


def test_shards_in_an_archive(archive, tmp_path):
    mt.save_file(STATE, "model.safetensors", max_shard_size=20)
    archive({path.name: path.read_bytes() for path in tmp_path.glob("model*")})
    assert list(mt.load_file("model.nemo")) == list(STATE)


def test_a_damaged_archive_is_refused(archive, tmp_path, rounds):
    archive({"model.safetensors": safetensors()})
    data = bytearray((tmp_path / "model.nemo").read_bytes())
    step = rounds(70, 7)  # a few places, or many
    for place in range(0, len(data), step):
        changed = bytearray(data)
        changed[place] ^= 255
        (tmp_path / "changed").write_bytes(changed)
        try:
            mt.load_file(tmp_path / "changed")
        except mt.CheckpointError:
            pass


def test_checksums_of_an_archive_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    in_zip("a.zip", {"model.safetensors": safetensors()})
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[data.index(STATE["b"].tobytes())] ^= 255
    (tmp_path / "a.zip").write_bytes(data)
    (problem,) = verify("a.zip")
    assert problem.kind == "damaged" and "Bad CRC-32" in problem.message


@needs("h5py")
def test_a_model_of_keras(archive):
    import h5py

    with h5py.File("a.h5", "w") as file:
        for number in (0, 1, 2, 10):
            file[f"layers/{number}"] = STATE["b"]
    with open("a.h5", "rb") as file:
        archive({"config.json": b"{}", "model.weights.h5": file.read()})
    assert list(mt.load_file("model.nemo")) == [f"layers.{number}" for number in (0, 1, 2, 10)]
    with open("a.h5", "rb") as file, open("block.h5", "wb") as new:
        new.write(bytes(512) + file.read())
    assert len(mt.load_file("block.h5")) == 4


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_program_of_torch_export(tmp_path):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    program = torch.export.export(model, (torch.ones(2, 3),))
    torch.export.save(program, tmp_path / "model.pt2")
    read = mt.load_file(tmp_path / "model.pt2")
    own = model.state_dict()
    assert read.keys() == own.keys()
    assert all(read[key].tolist() == own[key].tolist() for key in own)
    assert verify(tmp_path / "model.pt2") == []
