# SPDX-License-Identifier: BSD-3-Clause
"""The text beside tensors: it goes into a new file whole, or a line says that it does not."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from helpers.gguf_files import gguf, text
from helpers.needs import needs

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint
from modtree.cli import main

ONE = {"w": np.ones(4, np.float32)}


def _array(kind, items, form=None):
    values = [struct.pack(f"<{form}", item) if form else text(item) for item in items]
    return struct.pack("<IQ", kind, len(items)) + b"".join(values)


def test_lists_of_a_gguf_file_are_written_whole(tmp_path):
    tokens, scores = [f"token {i}" for i in range(3000)], list(range(3000))
    settings = [("tokens", 9, _array(8, tokens)), ("scores", 9, _array(5, scores, "i"))]
    nested = struct.pack("<IQ", 9, 2) + _array(7, [1, 0], "B") * 2
    settings += [("nested", 9, nested), ("name", 8, text("a, b"))]
    (tmp_path / "a.gguf").write_bytes(gguf(ONE, settings))
    convert(tmp_path / "a.gguf", tmp_path / "b.safetensors")
    with open_checkpoint(tmp_path / "b.safetensors") as checkpoint:
        found = checkpoint.metadata
    assert json.loads(found["tokens"]) == tokens and json.loads(found["scores"]) == scores
    assert found["nested"] == "[[true,false],[true,false]]" and found["name"] == "a, b"


@needs("h5py")
def test_attributes_of_an_hdf5_file_are_written_whole(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["w"] = ONE["w"]
        file.attrs["config"], file.attrs["numbers"] = "x" * 5000, np.arange(500)
    convert(tmp_path / "a.h5", tmp_path / "b.safetensors")
    with open_checkpoint(tmp_path / "b.safetensors") as checkpoint:
        assert checkpoint.metadata["config"] == "x" * 5000
        assert json.loads(checkpoint.metadata["numbers"]) == list(range(500))


@needs("h5py")
def test_attributes_below_the_root_of_an_hdf5_file_are_written_too(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("model_weights")
        group.attrs["layer_names"], group.attrs["nothing"] = [b"dense", b"norm"], h5py.Empty("f")
        group["dense"] = ONE["w"]
        group["dense"].attrs["unit"] = "m"
        group.attrs.create("odd", b"a\xff", dtype=h5py.string_dtype())
        time = h5py.h5t.UNIX_D32LE  # which NumPy has no type for
        h5py.h5a.create(group.id, b"time", time, h5py.h5s.create(h5py.h5s.SCALAR))
    convert(tmp_path / "a.h5", tmp_path / "b.safetensors")
    with open_checkpoint(tmp_path / "b.safetensors") as checkpoint:
        assert list(checkpoint.entries) == ["model_weights.dense"]
        assert checkpoint.metadata["model_weights.layer_names"] == '["dense","norm"]'
        assert checkpoint.metadata["model_weights.nothing"] == ""
        assert checkpoint.metadata["model_weights.dense.unit"] == "m"
        assert checkpoint.metadata["model_weights.odd"] == r"a\udcff"
        assert checkpoint.metadata["model_weights.time"].startswith("not read: ")


@needs("h5py")
def test_attributes_of_an_hdf5_file_with_one_name_are_refused(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("a").attrs["b"] = file.attrs["a.b"] = 1
    with pytest.raises(mt.CheckpointError, match="two attributes have the name 'a.b'"):
        open_checkpoint(tmp_path / "a.h5")


@needs("h5py")
def test_groups_of_an_hdf5_file_that_are_at_many_places_end(tmp_path, monkeypatch):
    import h5py

    from modtree.files import libraries

    monkeypatch.setattr(libraries, "_MOST", 1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file
        for _ in range(12):
            inner = group.create_group("own")
            group["link"], group = inner, inner
    with pytest.raises(mt.CheckpointError, match="more than 1,000 arrays, groups and attributes"):
        open_checkpoint(tmp_path / "a.h5")


@pytest.mark.parametrize("size", [None, "16"])
def test_what_a_file_of_torch_has_no_place_for_is_named(size, tmp_path, capsys):
    mt.save_file({**ONE, "v": ONE["w"].copy()}, tmp_path / "a.safetensors", {"who": "me"})
    options = [] if size is None else ["--max-shard-size", size]
    main(["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "b.pt"), *options])
    is_named = "left out, of the metadata: who" in capsys.readouterr().out
    assert is_named == (size is None)
    if size is not None:
        with open_checkpoint(tmp_path / "b.pt") as checkpoint:
            assert checkpoint.metadata["who"] == "me"


def test_what_all_shards_say_is_said_by_the_whole(tmp_path):
    files = {}
    for name in "ab":
        mt.save_file({name: ONE["w"]}, tmp_path / f"{name}.safetensors", {"who": "me", "of": name})
        files[name] = f"{name}.safetensors"
    index = {"metadata": {"sizes": [1, 2]}, "weight_map": files}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.metadata == {"format": "pt", "who": "me", "sizes": "[1,2]"}
