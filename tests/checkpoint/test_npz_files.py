# SPDX-License-Identifier: BSD-3-Clause
"""Archives of numpy.savez(): read without pickles."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest

import modtree as mt
from modtree.checkpoints import convert, open_checkpoint, verify

ARRAYS = {
    "w": np.arange(6.0).reshape(2, 3),
    "layers.0.bias": np.arange(3, dtype=np.float32),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    "big": np.arange(3, dtype=">i4"),
    "flags": np.array([True, False]),
    "number": np.array(5, np.int16),
    "empty": np.zeros((0, 2), np.float16),
}
OTHERS = {"objects": np.array([1, None], object), "text": np.array(["a", "bc"])}


@pytest.fixture(params=[np.savez, np.savez_compressed], ids=["stored", "packed"])
def path(request, tmp_path):
    request.param(tmp_path / "arrays.npz", **ARRAYS, **OTHERS)
    return tmp_path / "arrays.npz"


def test_arrays_of_numbers_are_read(path):
    state = mt.load_file(path)
    assert list(state) == [*ARRAYS, *OTHERS]
    for key, array in ARRAYS.items():
        assert np.array_equal(state[key].numpy(), array) and state[key].shape == array.shape
    assert str(state["objects"]) == "‹array of objects, which are pickled [2]›"
    assert verify(path) == []


def test_bytes_are_read_as_files_are(path):
    state = mt.load_file(path.read_bytes())
    assert all(np.array_equal(state[key].numpy(), array) for key, array in ARRAYS.items())
    assert verify(path.read_bytes()) == []


def test_load_says_what_reads_it(path):
    with pytest.raises(pickle.UnpicklingError, match=r"of NumPy \(.npz\): modtree.load_file\(path"):
        mt.load(path)


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_they_are_converted(ending, path, tmp_path):
    convert(path, tmp_path / f"out.{ending}")
    state = mt.load_file(tmp_path / f"out.{ending}")
    assert list(state) == list(ARRAYS)
    assert all(np.array_equal(state[key].numpy(), array) for key, array in ARRAYS.items())


def with_entry(name, content, packed=False):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if packed else 0) as opened:
        opened.writestr(name, content)
    return bytearray(file.getvalue())


def npy(header):
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text


SIZES = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (with_entry("w.npy", npy(SIZES % 5) + bytes(16)), "takes 20 bytes, and 16 are there"),
        (with_entry("w.npy", npy(SIZES % (1 << 61))), "an array that no memory could hold"),
        (with_entry("w.npy", npy(SIZES % -1)), "where sizes belong"),
        (with_entry("w.npy", npy("(" * 100)), "a header that is not one: SyntaxError"),
        (with_entry("w.npy", npy("__import__('os')")), "the archive is damaged"),
        (with_entry("w.npy", b"x"), "an array begins with"),
    ],
)
def test_reasons(content, reason, tmp_path):
    path = tmp_path / "arrays.npz"
    path.write_bytes(content)
    with pytest.raises(mt.CheckpointError, match=reason):
        open_checkpoint(path)


def test_a_changed_value_is_found_by_its_checksum(tmp_path):
    path = tmp_path / "arrays.npz"
    content = with_entry("w.npy", npy(SIZES % 4) + b"abcdefghijklmnop")
    content[content.index(b"abcd")] ^= 1
    path.write_bytes(content)
    (problem,) = verify(path)
    assert "Bad CRC-32" in problem.message and problem.key == "w"
    with pytest.raises(mt.CheckpointError, match="Bad CRC-32"):
        mt.load_file(path)
