# SPDX-License-Identifier: BSD-3-Clause
"""Files that are parts of one checkpoint: put together where names and metadata say how, or called
what they are.
"""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest
from helpers.gguf_files import gguf, text

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint, verify
from modtree.cli import main

COUNTS = ("count", "tensors.count")
STATE = {f"x.{i}": np.full(10, i, np.float32) for i in range(3)}


@pytest.fixture(params=["safetensors", "gguf", "bin"])
def shards(request, tmp_path):
    """The folder of three shards without an index, and their ending."""
    ending, folder = request.param, tmp_path / "shards"
    folder.mkdir()
    for number, (key, value) in enumerate(STATE.items(), 1):
        path = folder / f"model-{number:05}-of-00003.{ending}"
        if ending == "gguf":
            counts = [(f"split.{name}", 4, struct.pack("<I", 3)) for name in COUNTS]
            path.write_bytes(gguf({key: value}, [*counts, ("general.name", 8, text("x"))]))
        elif ending == "bin":
            mt.save({key: mt.from_numpy(value)}, path, format="torch")
        else:
            mt.save_file({key: value}, path)
    return folder, ending


def test_numbered_shards_are_one_checkpoint(shards, tmp_path):
    folder, ending = shards
    for path in (folder, folder / f"model.{ending}"):
        assert {key: value.tolist() for key, value in mt.load_file(path).items()} == {
            key: value.tolist() for key, value in STATE.items()
        }
        assert verify(path, finite=True) == []
    convert(folder, tmp_path / "whole.safetensors")
    assert len(mt.load_file(tmp_path / "whole.safetensors")) == 3


def test_one_of_them_is_called_a_part_by_every_command(shards, tmp_path, capsys):
    folder, ending = shards
    path = str(folder / f"model-00002-of-00003.{ending}")
    for command, expected in (
        (["inspect"], ", part 2 of 3, 1 entry"),
        (["verify"], "note: it is not the whole: part 2 of 3"),
        (["convert", str(tmp_path / "new.pt")], f"not the whole: {path} is part 2 of 3"),
        (["diff", path], "(part 2 of 3)"),
    ):
        main([command[0], path, *command[1:]])
        assert expected in capsys.readouterr().out


def test_a_missing_one_is_named(shards):
    folder, ending = shards
    os.remove(folder / f"model-00002-of-00003.{ending}")
    for path in (folder, folder / f"model.{ending}"):
        with pytest.raises((mt.CheckpointError, OSError), match="those of number 2 are missing"):
            open_checkpoint(path)
    with open_checkpoint(folder / f"model-00001-of-00003.{ending}") as checkpoint:
        assert checkpoint.part_of == "part 1 of 3"


def test_the_first_part_of_a_gguf_file_stands_for_the_whole(shards):
    folder, ending = shards
    if ending == "gguf":
        with open_checkpoint(folder / "model-00001-of-00003.gguf") as checkpoint:
            assert len(checkpoint.entries) == 3 and checkpoint.part_of == ""
            assert checkpoint.metadata == {"general.name": "x"}


def test_an_entry_in_two_of_them_is_refused(shards):
    folder, ending = shards
    first, second = (folder / f"model-0000{number}-of-00003.{ending}" for number in (1, 2))
    second.write_bytes(first.read_bytes())
    with pytest.raises(mt.CheckpointError, match="as well"):
        open_checkpoint(folder / f"model.{ending}")


# -- ranks -----------------------------------------------------------------------------------------


@pytest.fixture
def ranks(tmp_path):
    """Writes the files of two ranks, with the places of their parts."""

    def write(*places):
        (tmp_path / "ranks").mkdir()
        for rank, place in enumerate(places):
            state = {"w": np.full((2, 3), rank, np.float32), "b": np.ones(2, np.float32)}
            offsets = {"w": {"saved_offsets": place}, "b": {"saved_offsets": [0]}}
            path = tmp_path / "ranks" / f"shard-0000{rank + 1}-model-00001-of-00001.safetensors"
            mt.save_file(state, path, {"DCP_SHARDING_INFO": json.dumps(offsets)})
        return path

    return write


def test_files_of_ranks_are_put_together_by_the_offsets_in_their_metadata(ranks):
    path = ranks([0, 0], [2, 0])
    read = mt.load_file(path.parent)
    assert read["w"].tolist() == [[0.0] * 3] * 2 + [[1.0] * 3] * 2
    assert read["b"].tolist() == [1.0, 1.0] and verify(path.parent) == []
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.part_of == "the part of one rank"


def test_parts_that_leave_a_hole_are_refused(ranks):
    path = ranks([0, 0], [3, 0])
    with pytest.raises(mt.CheckpointError, match="tensor 'w'"):
        mt.load_file(path.parent)


@pytest.mark.parametrize("place", [[0], [-1, 0], ["a", 0], None, [2**70, 0]])
def test_wrong_offsets_are_refused(place, ranks):
    path = ranks([0, 0], place)
    with pytest.raises(mt.CheckpointError, match="tensor 'w': its place is"):
        mt.load_file(path.parent)
