# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of a file: nothing lost or doubled, whatever the sizes and kinds of what is written."""

from __future__ import annotations

import errno
import io
import os
import random

import numpy as np
import pytest

from modtree.files.checkpoint import atomic
from modtree.files.checkpoint.atomic import BlockWriter


def writer(path):
    return BlockWriter(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(atomic, "_BLOCK", 64)
    monkeypatch.setattr(atomic, "_STEP", 256)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_written_is_in_the_file(seed, tmp_path):
    rng = random.Random(seed)
    expected = b""
    with writer(tmp_path / "a") as file:
        for _ in range(rng.randrange(40)):
            size = rng.choice((0, 1, 5, 63, 64, 65, 128, 200, 1000))
            data = rng.randbytes(size)
            kinds = (bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8))
            assert file.write(rng.choice(kinds)(data)) == size
            expected += data
            assert file.tell() == len(expected)
            if rng.random() < 0.1:
                file.flush()
                assert (tmp_path / "a").read_bytes() == expected
    assert (tmp_path / "a").read_bytes() == expected


def test_blocks_begin_at_multiples_of_their_size(tmp_path, monkeypatch):
    begins = []
    write = io.FileIO.write

    class Noted(io.FileIO):
        def write(self, data):
            begins.append(self.tell())
            return write(self, data)

    monkeypatch.setattr(io, "FileIO", Noted)
    with writer(tmp_path / "a") as file:
        for size in (5, 100, 3, 640, 1, 70, 64, 10):
            file.write(bytes(size))
    assert begins and all(begin % 64 == 0 for begin in begins)


def test_elements_of_any_shape_are_bytes(tmp_path):
    array = np.arange(600, dtype=np.float64).reshape(20, 30)
    with writer(tmp_path / "a") as file:
        assert file.write(array) == array.nbytes
    assert (tmp_path / "a").read_bytes() == array.tobytes()


def test_writes_that_take_less_than_they_are_given(tmp_path, monkeypatch):
    write = io.FileIO.write

    class Slow(io.FileIO):
        def write(self, data):
            return write(self, memoryview(data)[:7])

    monkeypatch.setattr(io, "FileIO", Slow)
    data = bytes(range(256)) * 3
    with writer(tmp_path / "a") as file:
        file.write(data[:3])
        file.write(data[3:])
    assert (tmp_path / "a").read_bytes() == data


def test_a_full_disk_is_an_error_and_the_file_can_be_closed(tmp_path, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(io, "FileIO", Full)
    file = writer(tmp_path / "a")
    file.write(b"abc")
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            file.write(bytes(100))
    with pytest.raises(OSError, match="No space left"):
        file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.fileno()


def test_a_closed_file_takes_nothing(tmp_path):
    file = writer(tmp_path / "a")
    file.write(b"abc")
    file.close()
    file.close()
    assert (tmp_path / "a").read_bytes() == b"abc"
    with pytest.raises(ValueError, match="closed"):
        file.write(bytes(100))
    with pytest.raises(ValueError, match="closed"):
        file.flush()


@pytest.mark.parametrize("has_function", [True, False])
def test_the_system_is_asked_for_whole_blocks_once(has_function, tmp_path, monkeypatch):
    asked = []

    def ask(descriptor, begin, size, flags):
        assert os.fstat(descriptor)
        asked.append((begin, size))
        return -1

    found = ask if has_function else None
    monkeypatch.setattr(atomic, "_sync_file_range", lambda: found)
    with writer(tmp_path / "a") as file:
        for _ in range(100):
            file.write(bytes(37))
    ends = [begin + size for begin, size in asked]
    assert [begin for begin, _ in asked] == [0, *ends[:-1]][: len(asked)]
    assert bool(asked) == has_function and all(end % 64 == 0 for end in ends)


def test_the_function_of_linux_takes_these_arguments(tmp_path):
    atomic._sync_file_range.cache_clear()
    with open(tmp_path / "a", "wb") as file:
        file.write(b"a")
        file.flush()
        atomic._begin_writing(file.fileno(), 0, 1)
        ask = atomic._sync_file_range()
        if ask is not None:
            assert ask(file.fileno(), 0, 1, 2) in (0, -1)  # -1 where the file system has none
