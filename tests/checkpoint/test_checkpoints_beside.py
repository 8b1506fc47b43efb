# SPDX-License-Identifier: BSD-3-Clause
"""What an error names where a checkpoint is looked for and another one is there."""

from __future__ import annotations

import os
import re

import pytest

import modtree as mt
from modtree.files.checkpoint.beside import checkpoints_in

READERS = {
    "load_file": mt.load_file,
    "open_checkpoint": mt.checkpoints.open_checkpoint,
    "verify": mt.checkpoints.verify,
    "convert": lambda path: mt.checkpoints.convert(path, f"{path}.out.safetensors"),
    "diff": lambda path: mt.compare(path, path),
}
reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")


@reader
def test_a_file_that_is_not_there(read, tmp_path):
    touch(tmp_path, "model_best.safetensors", "last.pt", "notes.txt", ".last.pt.tmp.pt",
          "step-10/model.safetensors", "logs/a.txt")  # fmt: skip
    with pytest.raises(FileNotFoundError) as caught:
        read(tmp_path / "model.safetensors")
    folder = f"step-10{os.sep}".replace("\\", "\\\\")
    expected = f"there is model_best.safetensors, last.pt, {folder}"
    assert caught.value.strerror.endswith(f"; {expected}")
    assert caught.value.filename == str(tmp_path / "model.safetensors")


@reader
def test_nothing_is_there(read, tmp_path):
    for path in (tmp_path / "a.pt", tmp_path / "none" / "a.pt"):
        with pytest.raises(FileNotFoundError) as caught:
            read(path)
        assert caught.value.strerror == os.strerror(2)


def test_a_path_in_the_current_folder(tmp_path, monkeypatch):
    touch(tmp_path, "last.pt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is last.pt"):
        mt.load_file("lost.pt")


def test_a_folder_without_a_usual_name(tmp_path):
    touch(tmp_path, *(f"{i}.pt" for i in range(8)), "a/model.safetensors.index.json")
    with pytest.raises(mt.CheckpointError, match="the folder holds no checkpoint") as caught:
        mt.load_file(tmp_path)
    assert "; there is 0.pt, 1.pt, 2.pt, 3.pt, 4.pt and 4 more" in str(caught.value)
    assert checkpoints_in(str(tmp_path))[-1] == f"a{os.sep}"


def test_an_empty_folder(tmp_path):
    with pytest.raises(mt.CheckpointError) as caught:
        mt.load_file(tmp_path)
    assert caught.value.reason.endswith("pytorch_model.bin.index.json")


@pytest.mark.skipif(os.name == "nt", reason="names of POSIX")
def test_names_that_a_terminal_should_not_get(tmp_path):
    touch(tmp_path, "\x1b[31m\n.pt", "x" * 250 + ".pt")
    with pytest.raises(FileNotFoundError) as caught:
        mt.load_file(tmp_path / "a.pt")
    assert "\x1b" not in caught.value.strerror and "\n" not in caught.value.strerror
    assert len(caught.value.strerror) < 400


def test_a_large_folder_is_not_read_to_its_end(tmp_path):
    touch(tmp_path, *(f"{i}.txt" for i in range(2100)), "a.pt")
    with pytest.raises(FileNotFoundError):
        mt.load_file(tmp_path / "b.pt")


def test_an_index_is_taken_and_a_broken_name_is_an_error(tmp_path):
    mt.save_file({"a": mt.ones(9), "b": mt.ones(9)}, tmp_path / "m.safetensors", max_shard_size=40)
    assert list(mt.load_file(tmp_path / "m.safetensors")) == ["a", "b"]
    with pytest.raises(ValueError, match="null"):
        mt.load_file("a\0b")
    if os.name != "nt":
        with pytest.raises(NotADirectoryError):
            mt.load_file(tmp_path / "m.safetensors.index.json" / "b")


@pytest.mark.parametrize("name", [".metadata", "_CHECKPOINT_METADATA", "adapter_config.json"])
def test_folders_of_other_formats_are_named(name, tmp_path):
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / name).write_bytes(b"")
    with pytest.raises(mt.CheckpointError, match=f"there is 5{re.escape(os.sep)}$"):
        mt.load_file(tmp_path)
