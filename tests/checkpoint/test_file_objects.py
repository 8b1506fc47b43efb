# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints in file objects and bytes."""

from __future__ import annotations

import io
import json

import pytest
from helpers.remote_checkpoints import KINDS, assert_same, file_of, state_of

import modtree as mt
from modtree.checkpoints import CheckpointError, convert, open_checkpoint, verify


class OnlyReads:
    """A stream, such as the body of an answer."""

    def __init__(self, data):
        self._file = io.BytesIO(data)
        self.read = self._file.read


class Reads(io.RawIOBase):
    """A file that gives less than was asked for."""

    def __init__(self, data):
        self._file = io.BytesIO(data)

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, at, whence=0):
        return self._file.seek(at, whence)

    def read(self, count=-1):
        return self._file.read(min(count, 1000) if count >= 0 else 1000)


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, io.BytesIO, OnlyReads, Reads])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_and_file_objects(kind, form, tmp_path):
    state = state_of()
    data = file_of(kind, state, tmp_path)
    assert_same(mt.load_file(form(data)), state)
    assert verify(form(data), finite=True) == []
    assert not mt.compare(form(data), state)
    convert(form(data), tmp_path / "new.safetensors")
    assert_same(mt.load_file(tmp_path / "new.safetensors"), state)
    with open_checkpoint(form(data)) as checkpoint:
        assert checkpoint.path == f"<{form.__name__}>" and len(checkpoint.keys()) == 6
    if kind != "safetensors" and form is not Reads:
        assert_same(mt.load(form(data)), state)


def test_a_file_object_is_read_from_its_beginning_and_stays_open(tmp_path):
    mt.save_file(state_of(), tmp_path / "a.safetensors")
    with open(tmp_path / "a.safetensors", "rb") as file:
        file.seek(77)
        assert_same(mt.load_file(file), state_of())
        assert not file.closed
    with pytest.raises(CheckpointError, match=r"a.safetensors: .*the file is truncated"):
        with open(tmp_path / "a.safetensors", "r+b") as file:
            file.truncate(1000)
            mt.load_file(file)


@pytest.mark.parametrize("given", [3, None, [], object(), io.StringIO("{}")])
def test_what_is_no_file(given):
    with pytest.raises(TypeError, match="open for reading bytes"):
        mt.load_file(given)


class Wrong(io.RawIOBase):
    def __init__(self, answer):
        self._answer = answer

    def seekable(self):
        return True

    def seek(self, at, whence=0):
        return 1000

    def tell(self):
        return 1000

    def read(self, count=-1):
        return self._answer


@pytest.mark.parametrize("answer", ["text", None, bytes(10**6), 3])
def test_file_objects_that_give_something_else(answer):
    with pytest.raises(TypeError, match="expected a file that is open for reading bytes"):
        mt.load_file(Wrong(answer))


def test_an_index_in_memory_has_nothing_beside_it():
    with pytest.raises(CheckpointError, match="bytes alone do not tell where"):
        mt.load_file(json.dumps({"weight_map": {"a": "b.safetensors"}}).encode())
