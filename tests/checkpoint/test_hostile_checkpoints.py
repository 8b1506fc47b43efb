# SPDX-License-Identifier: BSD-3-Clause
"""safetensors files and indexes from a stranger: each is read right or refused with
CheckpointError, in little memory and time, and no file outside of the folder is opened.

More of them: ``python tests/checkpoint/test_hostile_checkpoints.py FIRST LAST``.
"""

from __future__ import annotations

import builtins
import os
import shutil
import sys
import tempfile
import time
import tracemalloc
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.hostile_checkpoints import INDEX, hostile_file, hostile_folder, snapshot

import modtree as mt
from modtree.files.checkpoint.reader import open_checkpoint
from modtree.files.checkpoint.verify import verify

safetensors = pytest.importorskip("safetensors")

FILES = 1500
FOLDERS = 300

#: What the library reads and we refuse, by words of our messages: with two entries of one key it
#: takes either; arrays have 64 dimensions, whose product fits; a bool is 0 or 1; and what is not
#: the format's but ours.
STRICTER = (
    "names it twice",
    "dimensions, and arrays have up to",
    "no memory holds the shape",
    "a bool is neither 0 nor 1",
    "the metadata 'modtree' of the file is damaged",
)


#: NumPy has no such numbers: never, or not without the package ml_dtypes.
NOT_OF_NUMPY = {"float4_e2m1fn"}
if find_spec("ml_dtypes") is None:
    NOT_OF_NUMPY |= {"bfloat16", "float8_e4m3fn"}


def library_reads(path):
    """The entries as the library has them: key -> (dtype, shape, bytes); None when it refuses."""
    try:
        with safetensors.safe_open(path, "numpy") as file:
            keys = list(file.keys())
    except (safetensors.SafetensorError, OSError, MemoryError):
        return None
    try:
        entries = safetensors.deserialize(Path(path).read_bytes())
    except safetensors.SafetensorError:
        return None
    found = {key: (e["dtype"], tuple(e["shape"]), bytes(e["data"])) for key, e in entries}
    assert found.keys() == set(keys)
    return found


def read_all(path):
    """All that can be asked of a checkpoint: entries and their bytes, tensors, the state dict."""
    with open_checkpoint(path) as checkpoint:
        found = {}
        for key, entry in checkpoint.entries.items():
            data = b"".join(bytes(chunk) for chunk in checkpoint.chunks(key))
            assert len(data) == entry.nbytes
            found[key] = (entry.shape, data)
            if entry.dtype not in NOT_OF_NUMPY:
                array = checkpoint.array(key)
                assert array.shape == entry.shape and array.dtype.name == entry.dtype
                assert np.ascontiguousarray(array).tobytes() == data
        if NOT_OF_NUMPY.isdisjoint(entry.dtype for entry in checkpoint.entries.values()):
            state = checkpoint.state_dict()
            assert list(state) == checkpoint.keys()
            assert sum(value.numel() for value in state.values() if mt.is_tensor(value)) < 10**6
        return found


def check_file(seed, path):
    kind, content = hostile_file(seed)
    path.write_bytes(content)
    expected = library_reads(path)
    try:
        found = read_all(path)
    except mt.CheckpointError as error:
        assert error.file == str(path), kind
        assert len(str(error)) < 1000 + len(str(path)), kind
        if expected is not None:
            assert any(words in str(error) for words in STRICTER), (kind, str(error))
    else:
        assert expected is not None, (kind, "we read what the library refuses")
        assert found == {key: entry[1:] for key, entry in expected.items()}, kind
    assert path.read_bytes() == content


class Watch:
    """Which files are opened."""

    def __init__(self):
        self.opened = []

    def __enter__(self):
        self._open = builtins.open

        def watched(file, *args, **kwargs):
            self.opened.append(file)
            return self._open(file, *args, **kwargs)

        builtins.open = watched
        return self

    def __exit__(self, *error):
        builtins.open = self._open


def check_folder(seed, parent):
    folder = parent / "inside"
    folder.mkdir()
    kind = hostile_folder(seed, folder)
    before = snapshot(parent)
    problems = verify(folder)
    with Watch() as watch:
        try:
            found = read_all(folder / INDEX)
        except mt.CheckpointError as error:
            assert error.file.startswith(str(folder)), (kind, error.file)
            assert problems, (kind, str(error))
        else:
            index = mt.checkpoints.open_checkpoint(folder)
            with index:
                assert found.keys() == index.entries.keys(), kind
    for file in watch.opened:
        assert os.path.realpath(os.path.dirname(file)) == os.path.realpath(folder), (kind, file)
        assert not os.path.islink(file), (kind, file)
    assert snapshot(parent) == before, kind


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("start", range(0, FILES, 150))
def test_files(start, tmp_path):
    for seed in range(start, start + 150):
        check_file(seed, tmp_path / "hostile.safetensors")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("start", range(0, FOLDERS, 100))
def test_folders(start, tmp_path):
    for seed in range(start, start + 100):
        parent = tmp_path / str(seed)
        parent.mkdir()
        check_folder(seed, parent)
        shutil.rmtree(parent)


def test_memory_and_time_are_bounded_by_the_size_of_the_file(tmp_path):
    path = tmp_path / "hostile.safetensors"
    tracemalloc.start()
    try:
        for seed in range(0, 500):
            path.write_bytes(hostile_file(seed)[1])
            start = time.process_time()
            tracemalloc.reset_peak()
            try:
                mt.load_file(path)
            except mt.CheckpointError:
                pass
            assert tracemalloc.get_traced_memory()[1] < 50_000_000, seed
            assert time.process_time() - start < 5, seed
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(os.name == "nt", reason="links and pipes")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../outside.safetensors", "no name of a file beside it"),
        ("/etc/passwd", "no name of a file beside it"),
        ("link.safetensors", "a link that leads out of the folder"),
        ("pipe.safetensors", "no regular file"),
        (INDEX, "the index names itself"),
        ("missing.safetensors", "missing.safetensors, which is not there"),
        (3, "the index names the file 3"),
    ],
)
def test_names_in_an_index(name, reason, tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    hostile_folder(0, folder)
    (folder / INDEX).write_text(f'{{"weight_map": {{"a": {_quoted(name)}}}}}')
    with pytest.raises(mt.CheckpointError, match=reason):
        mt.load_file(folder)


def _quoted(name):
    return f'"{name}"' if isinstance(name, str) else str(name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"1234567", "the file is truncated: it has 7 bytes"),
        (b"\xff" * 16, "name a header of 18446744073709551615 bytes"),
        (b"\x50" + bytes(7) + b"{}", "its header alone is to have 80"),
        (b"\x02" + bytes(7) + b"{}x", "1 bytes behind the last tensor, which nothing describes"),
        (b"\x02" + bytes(7) + b"[]", "it is no JSON object"),
    ],
)
def test_reasons(content, reason, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(mt.CheckpointError, match=reason):
        mt.load_file(path)


def test_what_is_no_checkpoint(tmp_path):
    (tmp_path / "notes").write_bytes(b"hello, this is text")
    with pytest.raises(
        mt.CheckpointError, match="not a known checkpoint format: it is text, 'hello, this is text'"
    ):
        mt.load_file(tmp_path / "notes")


def main(first, last):
    for seed in range(first, last):
        folder = Path(tempfile.mkdtemp())
        try:
            check_file(seed, folder / "hostile.safetensors")
            if seed % 5 == 0:
                check_folder(seed // 5, folder)
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
    print(f"{last - first} checkpoints: all refused or read right")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
