# SPDX-License-Identifier: BSD-3-Clause
"""The error where a checkpoint is looked for and there is none."""

from __future__ import annotations

import os

import pytest

import modtree as mt

READERS = {
    "load_file": mt.load_file,
    "open_checkpoint": mt.checkpoints.open_checkpoint,
    "verify": mt.checkpoints.verify,
    "convert": lambda path: mt.checkpoints.convert(path, f"{path}.out.safetensors"),
    "diff": lambda path: mt.compare(path, path),
}
reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@reader
def test_nothing_is_there(read, tmp_path):
    for path in (tmp_path / "a.pt", tmp_path / "none" / "a.pt"):
        with pytest.raises(FileNotFoundError) as caught:
            read(path)
        assert caught.value.strerror == os.strerror(2)


def test_an_empty_folder(tmp_path):
    with pytest.raises(mt.CheckpointError) as caught:
        mt.load_file(tmp_path)
    assert caught.value.reason.endswith("pytorch_model.bin.index.json")


def test_an_index_is_taken_and_a_broken_name_is_an_error(tmp_path):
    mt.save_file({"a": mt.ones(9), "b": mt.ones(9)}, tmp_path / "m.safetensors", max_shard_size=40)
    assert list(mt.load_file(tmp_path / "m.safetensors")) == ["a", "b"]
    with pytest.raises(ValueError, match="null"):
        mt.load_file("a\0b")
    if os.name != "nt":
        with pytest.raises(NotADirectoryError):
            mt.load_file(tmp_path / "m.safetensors.index.json" / "b")
