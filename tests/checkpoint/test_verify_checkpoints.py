# SPDX-License-Identifier: BSD-3-Clause
"""verify: what is wrong with a checkpoint, all of it."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from helpers.needs import needs

import modtree as mt
from modtree import nn
from modtree.files.checkpoint.verify import Problem, verify

INDEX = "model.safetensors.index.json"


def make():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
    model.tied = model[0]
    return model


@pytest.fixture
def folder(tmp_path):
    mt.save_file(make(), tmp_path, max_shard_size=80)
    return tmp_path


def kinds(problems):
    return [(p.kind, p.key) for p in problems]


def change_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def test_nothing_is_wrong(folder, tmp_path):
    assert verify(folder) == verify(folder, make()) == verify(folder, make().state_dict()) == []
    assert verify(folder, finite=True) == []


def test_a_shard_that_is_gone(folder):
    (folder / "model-00002-of-00002.safetensors").unlink()
    (problem,) = verify(folder, make())
    assert problem.kind == "missing" and problem.file.endswith("model-00002-of-00002.safetensors")
    assert "the file is not there, for 2 keys of the index" in str(problem)


def test_every_damaged_shard_is_named(folder):
    for number in (1, 2):
        file = folder / f"model-0000{number}-of-00002.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
    problems = verify(folder)
    assert [p.kind for p in problems] == ["damaged", "damaged"]
    assert all("truncated" in p.message for p in problems)


def test_index_and_shards_that_do_not_agree(folder):
    def change(index):
        weight_map = index["weight_map"]
        weight_map["1.bias"] = weight_map["0.weight"]
        weight_map["new"] = weight_map["0.weight"]
        del weight_map["0.bias"]
        index["metadata"]["total_size"] += 8

    change_index(folder, change)
    problems = verify(folder)
    assert kinds(problems) == [
        ("missing", "1.bias"),
        ("missing", "new"),
        ("index", "0.bias"),
        ("index", "1.bias"),
        ("index", None),
    ]
    assert "the index does not name it" in str(problems[2])
    assert "the index says it is in" in str(problems[3])
    assert "its total_size is" in str(problems[4])


def test_a_shard_that_the_index_does_not_name(folder):
    (folder / "model-00004-of-00004.safetensors").write_bytes(b"")
    (problem,) = verify(folder)
    assert problem.message == "a shard that the index does not name"


def test_against_a_model(folder):
    other = nn.Sequential(nn.Linear(3, 5), nn.Linear(4, 3, bias=False))
    other.more = nn.Linear(1, 1)
    assert sorted(kinds(verify(folder, other)), key=str) == [
        ("missing", "more.bias"),
        ("missing", "more.weight"),
        ("shape", "0.bias"),
        ("shape", "0.weight"),
        ("unexpected", "1.bias"),
        ("unexpected", "tied.bias"),
        ("unexpected", "tied.weight"),
    ]
    shape = next(p for p in verify(folder, other) if p.key == "0.weight")
    assert str(shape) == "'0.weight': its shape is [4, 3], that of the model [5, 3]"


def test_what_the_model_has_as_none_is_ignored(tmp_path):
    mt.save_file({"a": mt.ones(1), "gone.x": mt.ones(1), "table": mt.ones(1)}, tmp_path)
    model = nn.Module()
    model.a = nn.Parameter(mt.ones(1))
    model.register_module("gone", None)
    model.register_buffer("table", mt.ones(1), persistent=False)
    first, second = verify(tmp_path, model)
    assert kinds([first, second]) == [("ignored", "gone.x"), ("unexpected", "table")]
    assert "'gone' is None in the model" in first.message
    assert "not persistent" in second.message


def test_the_causes_are_those_of_a_load(tmp_path):
    model = make()
    model[1].weight = nn.Parameter(mt.ones(4, 3))
    model[1].weight = model[0].weight
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    mt.save_file(state, tmp_path)
    problems = verify(tmp_path, model)
    with pytest.raises(RuntimeError) as info:
        model.load_state_dict(state)
    assert len(problems.causes) == 1 and problems.causes[0] in str(info.value)
    assert "rename={'module.': ''}" in problems.causes[0]


def test_a_tied_entry_is_missing(tmp_path):
    model = nn.Module()
    model.embed, model.head = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
    model.head.weight = model.embed.weight
    mt.save_file({"embed.weight": mt.ones(4, 3)}, tmp_path)
    problems = verify(tmp_path, model)
    assert kinds(problems) == [("missing", "head.weight")]
    assert "it is the same tensor as 'embed.weight'" in problems[0].message
    (cause,) = problems.causes
    state_dict = {"embed.weight": mt.ones(4, 3)}
    exec(cause.partition("Try: ")[2], {"model": model, "state_dict": state_dict})
    assert mt.equal(model.head.weight, mt.ones(4, 3))


def test_shifted_numbers_are_not_called_renamed(tmp_path):
    mt.save_file(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), tmp_path)
    problems = verify(tmp_path, nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.Linear(2, 2)))
    assert problems.causes == []
    assert problems.doubts == [
        "numbers have shifted: the state dict has '0', '1' where the model has '1', '2'"
    ]


def test_extra_state_against_a_model(tmp_path):
    class Extra(nn.Module):
        def get_extra_state(self):
            return {"step": 3}

    mt.save_file(Extra(), tmp_path)
    assert verify(tmp_path, Extra()) == []
    assert kinds(verify(tmp_path, nn.Module())) == [("unexpected", "_extra_state")]


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "float32",
        "float64",
        *(pytest.param(n, marks=needs("ml_dtypes")) for n in ("bfloat16", "float8_e5m2")),
    ],
)
def test_values_that_are_not_finite(dtype, tmp_path):
    values = mt.tensor([1.0, float("nan"), float("inf"), float("-inf")]).to(getattr(mt, dtype))
    mt.save_file({"a": values, "b": mt.arange(3), "c": mt.ones(2)}, tmp_path)
    (problem,) = verify(tmp_path, finite=True)
    assert kinds([problem]) == [("not finite", "a")]
    assert problem.message == "1 value is NaN, 2 are infinite"


def test_bools_that_are_none(tmp_path):
    mt.save_file({"a": mt.tensor([True, False])}, tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\2")
    (problem,) = verify(path)
    assert kinds([problem]) == [("damaged", "a")]


def test_a_damaged_file_is_one_problem(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"\xff" * 30)
    (problem,) = verify(path)
    assert problem.kind == "damaged" and problem.file == str(path)
    assert verify(path, make()) == [problem]


def test_an_empty_folder_is_a_problem_and_no_file_an_error(tmp_path):
    (problem,) = verify(tmp_path)
    assert "the folder holds no checkpoint" in problem.message
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "none.safetensors")


def test_an_index_of_another_name(folder):
    other = folder / "model.safetensors.index.fp16.json"
    (folder / INDEX).rename(other)
    assert verify(other, make()) == []
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert [p.kind for p in verify(other)] == ["missing"]


WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
from modtree.checkpoints import verify
(problem,) = verify(sys.argv[1], finite=True)
assert (problem.kind, problem.key) == ("not checked", "a"), problem
assert "pip install ml_dtypes" in problem.message
"""


def test_values_that_cannot_be_checked_without_ml_dtypes(tmp_path):
    text = b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0\0")
    subprocess.run([sys.executable, "-c", WITHOUT, str(path)], check=True)


def test_problems_are_values():
    assert Problem("a", "b") == Problem("a", "b", None, None)
    assert len({Problem("a", "b"), Problem("a", "b")}) == 1
    assert str(Problem("damaged", "too short", "x", "y")) == "x: 'y': too short"


def test_numpy_arrays_serve_as_a_model(tmp_path):
    mt.save_file({"a": mt.ones(2)}, tmp_path)
    assert verify(tmp_path, {"a": np.ones(2)}) == []
    assert kinds(verify(tmp_path, {"a": 3})) == [("unexpected", "a")]


# -- what a load would find ------------------------------------------------------------------------


def flipped(path, values):
    """One bit of the values of a tensor in a file."""
    data = bytearray(path.read_bytes())
    data[data.index(values.numpy().tobytes()) + 1] ^= 1
    path.write_bytes(data)


@pytest.fixture
def damaged(tmp_path):
    """A file of torch.save()'s form in which a byte of a tensor has changed."""
    path = tmp_path / "model.pt"
    weight = mt.arange(100.0)
    state = {"first": mt.ones(3), "weight": weight, "tied": weight}
    mt.save(state, path, format="torch")
    assert mt.checkpoints.verify(path) == [] and not mt.compare(path, path)
    flipped(path, weight)
    return path


def test_a_changed_byte_of_a_tensor_is_found(damaged):
    with pytest.raises(pickle.UnpicklingError, match="CRC"):
        mt.load(damaged)
    (problem,) = mt.checkpoints.verify(damaged)
    assert (problem.kind, problem.key) == ("damaged", "weight") and "CRC" in problem.message
    (problem,) = mt.checkpoints.verify(damaged, finite=True)
    assert problem.kind == "damaged"


@pytest.mark.parametrize("dtype", [mt.bool, mt.int64])
def test_a_changed_byte_is_found_once_in_any_dtype(tmp_path, dtype):
    path = tmp_path / "model.pt"
    values = (mt.arange(64) % 2).to(dtype)
    mt.save({"a": values, "b": mt.ones(2)}, path, format="torch")
    flipped(path, values)
    assert [problem.key for problem in mt.checkpoints.verify(path)] == ["a"]


def test_a_changed_byte_of_what_is_no_state_dict_is_found(tmp_path):
    path = tmp_path / "training.pt"
    momentum = mt.arange(50.0)
    mt.save({"state_dict": {"w": mt.ones(2)}, "momentum": momentum}, path, format="torch")
    flipped(path, momentum)
    (problem,) = mt.checkpoints.verify(path)
    assert (problem.kind, problem.key) == ("damaged", None)


def test_damaged_values_are_neither_compared_nor_converted(damaged, tmp_path):
    whole = tmp_path / "whole.safetensors"
    mt.save_file({"first": mt.ones(3), "weight": mt.arange(100.0)}, whole)
    for compare in (
        lambda: mt.compare(damaged, whole),
        lambda: mt.compare(whole, damaged),
        lambda: mt.checkpoints.convert(damaged, tmp_path / "new.safetensors"),
        lambda: mt.checkpoints.convert(damaged, tmp_path / "new.pt"),
    ):
        with pytest.raises(mt.CheckpointError, match="CRC"):
            compare()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "whole.safetensors"]


def test_a_changed_byte_of_a_shard_is_found(damaged, tmp_path):
    index = {"metadata": {}, "weight_map": dict.fromkeys(("first", "weight", "tied"), "model.pt")}
    (tmp_path / "model.bin.index.json").write_text(json.dumps(index))
    problems = mt.checkpoints.verify(tmp_path / "model.bin.index.json")
    assert [(problem.kind, problem.key) for problem in problems] == [("damaged", "weight")]
    with pytest.raises(mt.CheckpointError, match="CRC"):
        mt.compare(tmp_path / "model.bin.index.json", {"weight": mt.arange(100.0)})


def test_every_changed_byte_that_a_load_finds_is_found(tmp_path):
    path = tmp_path / "model.pt"
    mt.save({"w": mt.arange(8.0), "b": mt.tensor([True, False])}, path, format="torch")
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            mt.load(path)
        except pickle.UnpicklingError:
            assert mt.checkpoints.verify(path), f"byte {at}"
