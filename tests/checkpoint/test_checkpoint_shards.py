# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of several files with an index, as Hugging Face has them."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from helpers.implementations import needs_torch

import modtree as mt
from modtree import nn
from modtree.files.checkpoint.shards import as_size, is_shard_of, split

safetensors = pytest.importorskip("safetensors")
pytest.importorskip("safetensors.numpy")

INDEX = "model.safetensors.index.json"


def state(scale=1.0, count=5):
    return {
        f"layer{i}.weight": mt.full((25,), float(scale * i)) for i in range(count)
    }  # 100 bytes each


def names(folder):
    return sorted(os.listdir(folder))


def shards(count):
    return [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]


def assert_equal(read, written):
    assert list(read) == list(written)
    for key, value in written.items():
        np.testing.assert_array_equal(read[key].numpy(), value.numpy(), strict=True)


@pytest.mark.parametrize(
    ("size", "number"),
    [
        (17, 17),
        ("17", 17),
        ("5GB", 5 * 10**9),
        ("5 gb", 5 * 10**9),
        ("500MiB", 500 * 2**20),
        ("1.5KB", 1500),
        ("2KiB", 2048),
        ("1TB", 10**12),
        ("3TiB", 3 * 2**40),
        ("7B", 7),
    ],
)
def test_sizes(size, number):
    assert as_size(size) == number


@pytest.mark.parametrize("size", ["", "GB", "5XB", "-5GB", "5 G i B", "0", 0, -3, "0.1B"])
def test_sizes_that_are_none(size):
    with pytest.raises(ValueError, match="size"):
        as_size(size)


@pytest.mark.parametrize("size", [5.0, True, None, [5]])
def test_sizes_of_another_type(size):
    with pytest.raises(TypeError, match="a size is an int or text such as '5GB'"):
        as_size(size)


def test_splitting_keeps_the_order_and_leaves_large_ones_alone():
    sizes = [("a", 4), ("b", 4), ("c", 9), ("d", 1), ("e", 0), ("f", 8)]
    assert split(sizes, 8) == [["a", "b"], ["c"], ["d", "e"], ["f"]]
    assert split(sizes, 1000) == split(sizes, None) == [["a", "b", "c", "d", "e", "f"]]
    assert split([], 8) == [[]]


def test_files_and_index_are_those_of_hugging_face(tmp_path):
    mt.save_file(state(), tmp_path, max_shard_size=200)
    assert names(tmp_path) == [*shards(3), INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == 500
    assert index["weight_map"] == {
        "layer0.weight": shards(3)[0],
        "layer1.weight": shards(3)[0],
        "layer2.weight": shards(3)[1],
        "layer3.weight": shards(3)[1],
        "layer4.weight": shards(3)[2],
    }
    for name in shards(3):
        with safetensors.safe_open(tmp_path / name, "numpy") as file:
            assert file.metadata() == {"format": "pt"}
            assert {key for key, home in index["weight_map"].items() if home == name} == set(
                file.keys()
            )


@pytest.mark.parametrize("path", ["", INDEX, "model.safetensors"])
def test_folder_index_and_plain_name_are_one_checkpoint(path, tmp_path):
    mt.save_file(state(), tmp_path / "model.safetensors", max_shard_size="0.2KB")
    assert_equal(mt.load_file(tmp_path / path), state())


def test_what_fits_is_one_file(tmp_path):
    mt.save_file(state(), tmp_path, max_shard_size=500)
    assert names(tmp_path) == ["model.safetensors"]


def test_ties_versions_and_extra_state_go_through_shards(tmp_path):
    class Extra(nn.Module):
        def get_extra_state(self):
            return {"step": 3}

    model = nn.Sequential(nn.Linear(5, 5), Extra(), nn.BatchNorm1d(5), nn.Linear(5, 5))
    model[3].weight = model[0].weight
    mt.save_file(model, tmp_path, {"who": "me"}, max_shard_size=64)
    read, written = mt.load_file(tmp_path), model.state_dict()
    assert list(read) == list(written) and read._metadata == written._metadata
    assert read["1._extra_state"] == {"step": 3}
    assert read["3.weight"] is read["0.weight"]
    with mt.checkpoints.open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.metadata["who"] == "me"
        assert checkpoint.ties == {"3.weight": "0.weight"}


# -- saving again ----------------------------------------------------------------------------------


def test_each_save_leaves_its_own_files_only(tmp_path):
    (tmp_path / "other-00001-of-00002.safetensors").write_bytes(b"not ours")
    others = ["other-00001-of-00002.safetensors"]
    for scale, (size, expected) in enumerate(
        [
            (200, [*shards(3), INDEX]),
            (200, [*shards(3), INDEX]),
            (100, [*shards(5), INDEX]),
            (300, [*shards(2), INDEX]),
            (None, ["model.safetensors"]),
            (100, [*shards(5), INDEX]),
            (500, ["model.safetensors"]),
        ]
    ):
        mt.save_file(state(scale), tmp_path, max_shard_size=size)
        assert names(tmp_path) == sorted(expected + others)
        assert_equal(mt.load_file(tmp_path), state(scale))


def test_without_hard_links_shards_keep_their_first_names(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    for scale in (1, 2, 3):
        mt.save_file(state(scale), tmp_path, max_shard_size=200)
        assert_equal(mt.load_file(tmp_path), state(scale))
        found = names(tmp_path)
        assert len(found) == 4 and found[-1] == INDEX
        assert all(is_shard_of(name, "model.safetensors") for name in found[:-1])


@pytest.mark.slow(keep=8)
@pytest.mark.parametrize("step", range(40))
def test_wherever_a_save_stops_one_whole_checkpoint_is_there(step, tmp_path, monkeypatch):
    """Every call that changes the folder may be the last one that a process makes."""
    before, after = (None, 200) if step % 2 else (200, 100)
    mt.save_file(state(1), tmp_path, max_shard_size=before)
    left = [step // 2]

    def stopping(function):
        def call(*args, **kwargs):
            if left[0] <= 0:
                raise SystemExit
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink", "link"):
            patch.setattr(os, name, stopping(getattr(os, name)))
        try:
            mt.save_file(state(2), tmp_path, max_shard_size=after)
        except SystemExit:
            pass
    read = mt.load_file(tmp_path)
    assert_equal(read, state(int(read["layer1.weight"][0].item())))
    mt.save_file(state(3), tmp_path, max_shard_size=300)
    assert_equal(mt.load_file(tmp_path), state(3))
    assert [n for n in names(tmp_path) if not n.endswith(".tmp")] == [*shards(2), INDEX]


def test_shard_names_of_others_are_left_alone():
    assert is_shard_of("model-00001-of-00003.safetensors", "x/model.safetensors")
    assert is_shard_of("model-0a1b2c3d-00001-of-00003.safetensors", "model.safetensors")
    for name in (
        "model.safetensors",
        "model-lora-00001-of-00003.safetensors",
        "model2-00001-of-00003.safetensors",
        "model-00001-of-00003.bin",
        "model-1-of-3.safetensors",
    ):
        assert not is_shard_of(name, "model.safetensors"), name


def test_saves_that_are_killed_again_and_again_leave_the_files_of_one(tmp_path, monkeypatch):
    mt.save_file(state(1), tmp_path, max_shard_size=200)
    for _ in range(4):
        dead = []

        def die(*args, dead=dead):
            dead.append(True)
            raise SystemExit

        def remove(file, dead=dead):
            if not dead:
                os.unlink(file)

        with monkeypatch.context() as patch:
            patch.setattr("modtree.files.checkpoint.save.write_index", die)
            patch.setattr("modtree.files.checkpoint.save._remove", remove)
            with pytest.raises(SystemExit):
                mt.save_file(state(2), tmp_path, max_shard_size=100)
        assert_equal(mt.load_file(tmp_path), state(1))
        assert len(names(tmp_path)) == 4 + 5
    mt.save_file(state(3), tmp_path, max_shard_size=200)
    assert names(tmp_path) == [*shards(3), INDEX]


def test_a_failing_save_leaves_no_shards(tmp_path):
    mt.save_file(state(1), tmp_path, max_shard_size=200)
    before = names(tmp_path)
    wrong = {**state(2), "bad\udc80": mt.zeros(3)}
    with pytest.raises(mt.CheckpointError, match="UTF-8"):
        mt.save_file(wrong, tmp_path, max_shard_size=200)
    assert names(tmp_path) == before
    assert_equal(mt.load_file(tmp_path), state(1))


# -- folders ---------------------------------------------------------------------------------------


def test_a_folder_of_another_name(tmp_path):
    mt.save_file(state(), tmp_path / "net.safetensors")
    assert_equal(mt.load_file(tmp_path), state())
    mt.save_file(state(), tmp_path / "net2.safetensors")
    with pytest.raises(mt.CheckpointError, match="several state dicts, net, net2: name one"):
        mt.load_file(tmp_path)
    assert_equal(mt.load_file(tmp_path, at="net2"), state())


def test_a_folder_without_a_checkpoint(tmp_path):
    with pytest.raises(mt.CheckpointError, match="the folder holds no checkpoint: expected model"):
        mt.load_file(tmp_path)


def test_links_as_caches_of_downloads_have_them(tmp_path):
    mt.save_file(state(), tmp_path / "model.safetensors", max_shard_size=200)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for i, name in enumerate([*shards(3), INDEX]):
        os.rename(tmp_path / name, tmp_path / "blobs" / str(i))
        os.symlink(f"../blobs/{i}", tmp_path / "snapshot" / name)
    assert_equal(mt.load_file(tmp_path / "snapshot"), state())


@needs_torch
def test_transformers_style_readers_in_torch(tmp_path):
    import safetensors.torch

    mt.save_file(state(), tmp_path, max_shard_size=200)
    found = {}
    for name in set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values()):
        found |= safetensors.torch.load_file(tmp_path / name)
    for key, value in state().items():
        np.testing.assert_array_equal(found[key].numpy(), value.numpy())
