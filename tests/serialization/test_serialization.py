# SPDX-License-Identifier: BSD-3-Clause
"""save and load: what was written comes back, torch's files can be read, and foreign code is not
run.
"""

from __future__ import annotations

import collections
import importlib
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from helpers.implementations import needs_torch

import modtree as mt
from modtree import nn


def written(value, lib=mt):
    file = io.BytesIO()
    lib.save(value, file)
    file.seek(0)
    return file


def trained():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = mt.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        model(mt.randn(4, 2)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def test_checkpoint_of_training_comes_back(tmp_path):
    model, optimizer = trained()
    path = tmp_path / "state.pt"
    checkpoint = {
        "epoch": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": mt.get_rng_state(),
        "best": float("inf"),
        "names": ["a", ("b", None)],
    }
    mt.save(checkpoint, path)
    back = mt.load(path)
    assert isinstance(back["model"], collections.OrderedDict)
    assert {k: back[k] for k in ("epoch", "best", "names", "random")} == {
        k: checkpoint[k] for k in ("epoch", "best", "names", "random")
    }
    other, other_optimizer = trained()
    other.load_state_dict(back["model"])
    other_optimizer.load_state_dict(back["optimizer"])
    x = mt.randn(4, 2)
    for m, o in ((model, optimizer), (other, other_optimizer)):
        o.zero_grad()
        m(x).pow(2).mean().backward()
        o.step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert p.tolist() == q.tolist()


@pytest.mark.parametrize(
    "value",
    [
        mt.tensor(3.0),
        mt.zeros(0, 2),
        mt.arange(6).reshape(2, 3).t(),
        mt.tensor([1 + 2j]),
        mt.tensor([True]),
        nn.Parameter(mt.ones(2), requires_grad=False),
        nn.Parameter(mt.ones(2)),
    ],
    ids=str,
)
def test_tensors(value):
    back = mt.load(written(value))
    assert type(back) is type(value) and back.dtype == value.dtype
    assert back.requires_grad == value.requires_grad and tuple(back.shape) == tuple(value.shape)
    assert back.tolist() == value.tolist()


def test_plain_values():
    value = {
        "dtype": mt.float64,
        "device": mt.device("cpu"),
        "size": mt.Size([1, 2]),
        "array": np.arange(3.0),
        "number": np.float32(2),
        "ordered": collections.OrderedDict(a=1),
        "set": {1, 2},
        "complex": 1j,
        "bytes": b"x",
    }
    back = mt.load(written(value))
    assert back.pop("array").tolist() == value.pop("array").tolist()
    assert back == value


def test_modules_need_trust():
    file = written(nn.Linear(1, 2))
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False"):
        mt.load(file)
    file.seek(0)
    assert isinstance(mt.load(file, weights_only=False), nn.Linear)


class Runs:
    def __reduce__(self):
        return os.mkdir, ("should_not_be_made",)


@pytest.mark.parametrize("as_zip", [False, True])
def test_code_in_a_file_does_not_run(as_zip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"a": Runs()})
    if as_zip:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", data)
        file.seek(0)
    else:
        file = io.BytesIO(data)
    with pytest.raises(pickle.UnpicklingError, match="neither a tensor nor a plain container"):
        mt.load(file)
    assert not (tmp_path / "should_not_be_made").exists()


def test_map_location():
    value = {"a": mt.ones(2), "b": [mt.ones(1), (mt.zeros(3),)]}
    for place in ("cpu", mt.device("cpu"), None, lambda storage, place: storage):
        assert mt.load(written(value), map_location=place)["a"].device == mt.device("cpu")
    moved = mt.load(written(value), map_location="meta")
    assert moved["a"].is_meta and moved["b"][1][0].is_meta
    with pytest.raises(RuntimeError, match="cuda"):
        mt.load(written(value), map_location="cuda")


@needs_torch
def test_files_of_torch():
    torch = importlib.import_module("torch")
    shared = torch.arange(6.0)
    value = {
        "state": torch.nn.BatchNorm2d(3).state_dict(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "part": shared.reshape(2, 3).t()[1:],
        "shared": shared,
        "bfloat16": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
        "half": torch.ones(2).half(),
        "bool": torch.tensor([True, False]),
        "complex": torch.tensor([1 + 2j]),
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(3),
    }
    back = mt.load(written({**value, "size": torch.Size([2]), "dtype": torch.int64}, torch))
    assert back.pop("size") == mt.Size([2]) and back.pop("dtype") == mt.int64
    for name, tensor in [*value.items(), *value["state"].items()]:
        if name == "state":
            continue
        ours = back[name] if name in back else back["state"][name]
        assert isinstance(ours, mt.Tensor) and ours.tolist() == tensor.tolist(), name
        assert tuple(ours.shape) == tuple(tensor.shape)
        if name != "bfloat16":  # depends on a package: tests/tensor/test_stored_dtypes.py
            assert str(ours.dtype).partition(".")[2] == str(tensor.dtype).partition(".")[2]
    assert isinstance(back["parameter"], nn.Parameter) and back["parameter"].requires_grad
    back["shared"][1] = 50  # tensors that shared memory still do
    assert back["part"][0, 0].item() == 50


@needs_torch
def test_a_file_of_torch_with_wrong_sizes():
    torch = importlib.import_module("torch")
    file = written(torch.arange(4.0), torch)
    with zipfile.ZipFile(file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as archive:
        for name, data in entries.items():
            if name.endswith("data.pkl"):
                assert data.count(b"K\x04\x85") == 1  # the size (4,)
                data = data.replace(b"K\x04\x85", b"K\x44\x85")
            archive.writestr(name, data)
    changed.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="does not fit the 4 values"):
        mt.load(changed)


@needs_torch
def test_optimizer_state_of_torch_goes_on():
    torch = importlib.import_module("torch")
    x = np.random.default_rng(0).standard_normal((5, 3))
    theirs = torch.nn.Linear(3, 2).double()
    their_optimizer = torch.optim.Adam(theirs.parameters(), lr=0.1)

    def step(lib, model, optimizer):
        optimizer.zero_grad()
        model(lib.from_numpy(x)).pow(2).mean().backward()
        optimizer.step()

    step(torch, theirs, their_optimizer)
    file = written({"m": theirs.state_dict(), "o": their_optimizer.state_dict()}, torch)
    back = mt.load(file)
    ours = nn.Linear(3, 2).double()
    optimizer = mt.optim.Adam(ours.parameters(), lr=0.5)
    ours.load_state_dict(back["m"], strict=True)
    optimizer.load_state_dict(back["o"])
    step(torch, theirs, their_optimizer)
    step(mt, ours, optimizer)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-12)


@needs_torch
def test_shared_memory_is_written_apart():
    for lib in (mt, importlib.import_module("torch")):
        whole = lib.zeros(3)
        back = lib.load(written({"whole": whole, "part": whole[1:]}, lib))
        back["whole"][1] = 5
        assert back["part"].tolist() == ([0.0, 0.0] if lib is mt else [5.0, 0.0])
