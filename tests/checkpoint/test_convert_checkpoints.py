# SPDX-License-Identifier: BSD-3-Clause
"""convert: other dtypes, keys, shards and formats, tensor by tensor."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from helpers.implementations import HAS_TORCH, not_under_a_sanitizer
from helpers.needs import needs

import modtree as mt
from modtree import nn
from modtree.files.checkpoint.convert import convert

safetensors = pytest.importorskip("safetensors")
pytest.importorskip("safetensors.numpy")

needs_limits = pytest.mark.skipif(
    sys.platform != "linux" or "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="limits the address space, of which AddressSanitizer takes terabytes",
)


@pytest.fixture
def source(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model.tied = model[0]
    mt.save_file(model, tmp_path / "source.safetensors", {"who": "me"})
    return tmp_path / "source.safetensors"


def assert_same(read, written):
    assert list(read) == list(written)
    for key, value in written.items():
        np.testing.assert_array_equal(read[key].numpy(), value.numpy(), strict=True)
    assert read._metadata == written._metadata


@pytest.mark.parametrize("size", [None, 60, "0.1KB"])
def test_shards_and_back(size, source, tmp_path):
    convert(source, tmp_path / "b.safetensors", max_shard_size=size)
    written = mt.load_file(source)
    assert_same(mt.load_file(tmp_path / "b.safetensors"), written)
    convert(tmp_path / "b.safetensors", tmp_path / "c.safetensors")
    read = mt.load_file(tmp_path / "c.safetensors")
    assert_same(read, written)
    assert read["tied.weight"] is read["0.weight"]
    with mt.checkpoints.open_checkpoint(tmp_path / "c.safetensors") as checkpoint:
        assert checkpoint.metadata == {"format": "pt", "who": "me"}


def test_onto_itself(source):
    written = {key: value.clone() for key, value in mt.load_file(source).items()}
    convert(source, source, max_shard_size=60)
    convert(source, source, max_shard_size=100)
    convert(source, source)
    assert os.listdir(source.parent) == [source.name]
    read = mt.load_file(source)
    for key, value in written.items():
        assert mt.equal(read[key], value)


@pytest.mark.parametrize("dtype", [mt.float16, "float16", np.float16, "torch.float16"])
def test_floating_tensors_change_their_dtype(dtype, source, tmp_path):
    convert(source, tmp_path / "b.safetensors", dtype=dtype)
    written, read = mt.load_file(source), mt.load_file(tmp_path / "b.safetensors")
    for key, value in written.items():
        expected = value.half() if value.is_floating_point() else value
        assert read[key].dtype == expected.dtype and mt.equal(read[key], expected)


@needs("ml_dtypes")
def test_bfloat16_and_back(source, tmp_path):
    convert(source, tmp_path / "b.safetensors", dtype="bfloat16")
    convert(tmp_path / "b.safetensors", tmp_path / "c.safetensors", dtype="float32")
    written, read = mt.load_file(source), mt.load_file(tmp_path / "c.safetensors")
    for key, value in written.items():
        if value.is_floating_point():
            value = value.to(mt.bfloat16).float()
        assert mt.equal(read[key], value), key


def test_large_numbers_become_infinite(tmp_path):
    mt.save_file({"a": mt.tensor([1e9, -1e9, 1.0])}, tmp_path / "a.safetensors")
    convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", dtype=mt.float16)
    expected = [float("inf"), float("-inf"), 1.0]
    assert mt.load_file(tmp_path / "b.safetensors")["a"].tolist() == expected


@pytest.mark.parametrize("dtype", ["int8", "float7", mt.int64, "float4_e2m1fn"])
def test_dtypes_that_are_no_floating_ones(dtype, source, tmp_path):
    with pytest.raises(ValueError, match="dtype is to be a floating one, such as 'bfloat16', got"):
        convert(source, tmp_path / "b.safetensors", dtype=dtype)


def test_keys_are_renamed_with_ties_and_versions(source, tmp_path):
    convert(source, tmp_path / "b.safetensors", rename={"0.": "first.", "tied.": "last."})
    written, read = mt.load_file(source), mt.load_file(tmp_path / "b.safetensors")
    assert list(read) == [re.sub("^tied", "last", re.sub("^0", "first", key)) for key in written]
    assert read["last.weight"] is read["first.weight"]
    assert list(read._metadata) == ["", "first", "1", "2", "last"]


def test_a_tie_takes_the_place_of_what_is_left_out(source, tmp_path):
    convert(source, tmp_path / "b.safetensors", rename=lambda key: None if key[0] == "0" else key)
    read = mt.load_file(tmp_path / "b.safetensors")
    assert mt.equal(read["tied.weight"], mt.load_file(source)["0.weight"])
    assert "tied.weight" in safetensors.numpy.load_file(tmp_path / "b.safetensors")


def test_views_follow_their_tensor_and_do_not_stay_alone(tmp_path):
    flat = mt.arange(12.0)
    mt.save_file({"a.flat": flat, "a.part": flat[3:7]}, tmp_path / "a.safetensors")
    convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", rename={"a.": ""})
    read = mt.load_file(tmp_path / "b.safetensors")
    read["flat"].fill_(1)
    assert read["part"].tolist() == [1.0] * 4
    with pytest.raises(mt.CheckpointError, match="in the memory of 'a.flat', which is to be left"):
        convert(
            tmp_path / "a.safetensors",
            tmp_path / "c.safetensors",
            rename=lambda key: key if "part" in key else None,
        )


def test_two_entries_of_one_key(source, tmp_path):
    with pytest.raises(ValueError, match="the same key 'x'"):
        convert(source, tmp_path / "b.safetensors", rename=lambda key: "x")
    assert os.listdir(tmp_path) == [source.name]


@pytest.mark.parametrize("target", ["b", "b.onnx"])
def test_targets_without_a_format(target, source, tmp_path):
    with pytest.raises(
        ValueError, match="does not say in which format to write: end it in .safetensors"
    ):
        convert(source, tmp_path / target)
    with pytest.raises(ValueError, match="got 'onnx'"):
        convert(source, tmp_path / target, format="onnx")
    convert(source, tmp_path / target, format="safetensors")
    assert len(mt.load_file(tmp_path / target)) == len(mt.load_file(source))


def test_a_damaged_source_leaves_the_target(source, tmp_path):
    target = tmp_path / "b.safetensors"
    convert(source, target)
    before = target.read_bytes()
    with open(source, "r+b") as file:
        file.truncate(os.path.getsize(source) - 3)
    with pytest.raises(mt.CheckpointError, match="truncated"):
        convert(source, target)
    assert target.read_bytes() == before


LIMITED = """
import resource, sys
import modtree as mt
import ml_dtypes
import modtree.files.checkpoint.convert as home

mt.save_file({"a": mt.ones(3)}, sys.argv[2])
for options in ({}, {"dtype": "bfloat16"}):  # what is imported on first use
    home.convert(sys.argv[2], sys.argv[2], overwrite=True, **options)
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) for line in file if line.startswith("VmSize"))
limit = used * 1024 + 120_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
home.convert(sys.argv[1], sys.argv[2], max_shard_size="50MB")
home.convert(sys.argv[2], sys.argv[2], dtype="bfloat16", overwrite=True)
"""


@needs("ml_dtypes")
@needs_limits
def test_a_checkpoint_larger_than_memory(tmp_path):
    array = np.arange(1_000_000, dtype=np.float32) % 1000
    state = {f"layer{i}": array + i for i in range(60)}  # 240 MB
    mt.save_file(state, tmp_path / "a.safetensors")
    files = [str(tmp_path / name) for name in ("a.safetensors", "b.safetensors")]
    subprocess.run([sys.executable, "-c", LIMITED, *files], check=True)
    read = mt.load_file(files[1])
    for i in (0, 31, 59):
        expected = mt.from_numpy(state[f"layer{i}"]).to(mt.bfloat16)
        assert mt.equal(read[f"layer{i}"], expected)


#: The memory that a conversion takes at most, in MiB.
PEAK = """
import re, sys
from modtree.checkpoints import convert

def peak():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+)", file.read())[1]) / 1024

source, target, dtype, size = sys.argv[1:]
join = {"*": 0} if source.endswith("ranks") else None
before = peak()
convert(source, target, dtype=dtype or None, max_shard_size=size or None, join=join)
print(peak() - before)
"""


@not_under_a_sanitizer
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["", "float16"])
@pytest.mark.parametrize("target", ["pt", "safetensors"])
@pytest.mark.parametrize("source", ["pt", "safetensors"])
def test_a_conversion_takes_the_memory_of_one_shard(source, target, dtype, tmp_path):
    state = {f"{i}": np.full((1000, 1000), i, np.float32) for i in range(32)}  # 128 MB
    first, second = tmp_path / f"model.{source}", tmp_path / f"new.{target}"
    mt.save_file(state, tmp_path / "a.safetensors", max_shard_size="8MB")
    convert(tmp_path / "a.safetensors", first, max_shard_size="8MB")
    assert _memory_taken(first, second, dtype, "8MB") < 60
    assert mt.load_file(second)["31"][7, 7].item() == 31.0


def _memory_taken(source, target, dtype, size):
    command = [sys.executable, "-c", PEAK, str(source), str(target), dtype, size]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _of_torch(state, path):
    torch = importlib.import_module("torch")
    plain = {key: torch.from_numpy(value) for key, value in state.items()}
    torch.save(plain, path, _use_new_zipfile_serialization=False)


def _of_ranks(state, path):
    path.mkdir()
    for rank in range(2):
        half = {key: mt.from_numpy(value[500 * rank :][:500]) for key, value in state.items()}
        mt.save(half, path / f"model_rank_{rank}.pt", format="torch")


WRITERS = {
    "safetensors": mt.save_file,
    "pt": lambda state, path: mt.save(
        {key: mt.from_numpy(value) for key, value in state.items()}, path, format="torch"
    ),
    "old.pt": _of_torch,
    "ranks": _of_ranks,
}


@not_under_a_sanitizer
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["", "float16"])
@pytest.mark.parametrize(
    "source", [pytest.param(n, marks=needs("torch") if n == "old.pt" else ()) for n in WRITERS]
)
def test_a_conversion_to_one_file_of_torch_takes_the_memory_of_few_tensors(source, dtype, tmp_path):
    state = {f"{i}": np.full((1000, 1000), i, np.float32) for i in range(32)}  # 128 MB
    first, second = tmp_path / f"model.{source}", tmp_path / "new.pt"
    WRITERS[source](state, first)
    assert _memory_taken(first, second, dtype, "") < 60
    read = mt.load(second)
    assert read["31"][7, 7].item() == 31.0 and read["31"].dtype == getattr(mt, dtype or "float32")
    if (torch := sys.modules.get("torch")) is not None:
        read = torch.load(second, mmap=True)
        assert all((read[key].numpy() == state[key]).all() for key in state)


def test_tensors_that_overlap_still_do_in_a_file_of_torch(tmp_path):
    whole = mt.arange(12.0)
    state = {"a": whole[:8], "b": whole[4:], "c": whole[2:6], "d": mt.ones(3, 2).T, "e": mt.ones(0)}
    mt.save(state, tmp_path / "model.pt", format="torch")
    convert(tmp_path / "model.pt", tmp_path / "new.pt")
    read = mt.load(tmp_path / "new.pt")
    read["a"][5] = -1.0
    assert read["b"][1] == read["c"][3] == -1.0
    assert read["d"].stride() == (1, 2) and read["e"].shape == (0,)
    assert all(mt.equal(read[key], state[key]) for key in "de")


def test_views_and_ties_stay_in_a_file_of_torch_of_another_dtype(tmp_path):
    weight = mt.arange(12.0).reshape(3, 4)
    state = {"w": weight, "row": weight[1], "tie": weight, "column": weight[:, 2]}
    mt.save_file(state, tmp_path / "model.safetensors")
    convert(tmp_path / "model.safetensors", tmp_path / "new.pt", dtype="float64")
    read = mt.load(tmp_path / "new.pt")
    read["tie"][1, 2] = -1.0
    assert read["w"][1, 2] == read["row"][2] == read["column"][1] == -1.0
    assert read["row"].dtype == mt.float64 and read["column"].stride() == (4,)


def test_attributes_of_parameters_stay_in_a_file_of_torch(tmp_path, torch):
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    parameter.scale = torch.full((3,), 2.0)
    torch.save({"p": parameter, "n": torch.zeros(2).requires_grad_()}, tmp_path / "model.pt")
    convert(tmp_path / "model.pt", tmp_path / "new.pt", dtype="float64")
    read = torch.load(tmp_path / "new.pt")
    assert type(read["p"]) is torch.nn.Parameter and not read["p"].requires_grad
    assert read["p"].dtype == torch.float64 and read["n"].requires_grad
    assert read["p"].scale.tolist() == [2.0, 2.0, 2.0]


class BigEndian:
    """The module sys of a machine with the other order of bytes."""

    byteorder = "big"
    modules = sys.modules


@needs("ml_dtypes")
def test_streamed_files_of_torch_are_in_the_order_of_the_machine(tmp_path, monkeypatch):
    """Not of uint16 and the like, which torch does not swap when it reads such a file."""
    names = ["float32", "float64", "float16", "bfloat16", "int64", "int8", "complex64"]
    state = {name: (mt.arange(6.0) + 0.5).to(getattr(mt, name)) for name in names}
    state["bool"] = mt.tensor([True, False, True])
    mt.save_file(state, tmp_path / "a.safetensors")
    monkeypatch.setattr("modtree.files.torch.writer.sys", BigEndian)
    convert(tmp_path / "a.safetensors", tmp_path / "a.pt")
    data = (tmp_path / "a.pt").read_bytes()
    assert b"byteorder" in data and state["float32"].numpy().astype(">f4").tobytes() in data
    read = [mt.load(tmp_path / "a.pt"), mt.load_file(tmp_path / "a.pt")]
    if HAS_TORCH:
        import torch

        read.append(mt.from_torch(torch.load(tmp_path / "a.pt", weights_only=True)))
    for found in read:
        assert list(found) == list(state)
        for name, value in state.items():
            assert found[name].dtype == value.dtype and found[name].tolist() == value.tolist()
