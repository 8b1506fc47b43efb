# SPDX-License-Identifier: BSD-3-Clause
"""Archives in torch's form from a stranger: each fault is named, and none costs more memory than
the file has bytes.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.hostile_files import (
    F4,
    archive,
    array,
    call,
    name,
    storage,
    tensor,
    torch_file,
    torch_tensor,
    tuple_of,
    value,
)
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

import modtree as mt
from modtree import nn
from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.reader import open_checkpoint

DAMAGED = "the file is damaged: "
LIST = (
    "which is neither a tensor nor a plain container. Only if you trust where the file comes "
    "from, load it with weights_only=False"
)
PICKLED = b"\x80\x02" + torch_tensor(storage()) + b"."


def outside(what):
    return f"Weights only load failed: the file contains {what}, {LIST}"


def changed(data, old, new, count=1):
    assert data.count(old) == count, data.count(old)
    return data.replace(old, new)


def bomb():
    """Eight compressed entries of 16 MiB each, in an eighth of a megabyte."""
    zeros = bytes(16 << 20)
    entries = [("a/data.pkl", PICKLED)] + [(f"a/data/{i}", zeros) for i in range(8)]
    return archive(entries, zipfile.ZIP_DEFLATED)


def directory_entry(data, entry):
    """Where the central directory has an entry."""
    at = data.index(b"PK\x01\x02")
    while True:
        length, extra, comment = struct.unpack_from("<HHH", data, at + 28)
        if data[at + 46 : at + 46 + length] == entry:
            return at
        at += 46 + length + extra + comment


def with_field(data, entry, place, form, *numbers):
    data = bytearray(data)
    struct.pack_into(form, data, directory_entry(data, entry) + place, *numbers)
    return bytes(data)


def overlapping():
    """The directory names the large record twice."""
    data = archive([("a/data.pkl", PICKLED), ("a/data/0", bytes(1 << 20)), ("a/data/1", b"")])
    (start,) = struct.unpack_from("<I", data, directory_entry(data, b"a/data/0") + 42)
    data = with_field(data, b"a/data/1", 42, "<I", start)
    return with_field(data, b"a/data/1", 20, "<II", 1 << 20, 1 << 20)


def one(pickled, data=b"\0" * 16):
    return torch_file(pickled, data)


def fits(count, size, stride, offset):
    return (
        f"a tensor of size {size} and strides {stride} at {offset} does not fit the {count} "
        f"values it is to be made of"
    )


def of_bytes(dtype, size=(4,), memory=None):
    """A tensor as torch writes those whose dtype has no storage of its own."""
    memory = memory or storage(b"torch.storage UntypedStorage", count=16)
    parts = memory, value(0), value(size), value((1,)), value(False), value({})
    return call(b"torch._utils _rebuild_tensor_v3", *parts, dtype)


GOOD = one(torch_tensor(storage()))
SWAPPED = [
    ("a/data.pkl", PICKLED),
    ("a/byteorder", b"big"),
    ("a/data/0", struct.pack(">4f", 1, 2, 3, 4)),
]

ENTRIES = {
    "compressed": (
        archive([("a/data.pkl", PICKLED), ("a/data/0", b"\0" * 16)], zipfile.ZIP_DEFLATED),
        "the entry 'a/data.pkl' of the archive is compressed; torch.save() writes entries as "
        "they are",
    ),
    "a bomb": (
        bomb(),
        "the entry 'a/data.pkl' of the archive is compressed; torch.save() writes "
        "entries as they are",
    ),
    "a larger size than there is": (
        with_field(GOOD, b"a/data/0", 20, "<II", 1 << 31, 1 << 31),
        "the entry 'a/data/0' of the archive overlaps another one",
    ),
    "sizes that differ": (
        with_field(GOOD, b"a/data/0", 24, "<I", 1 << 31),
        "the entry 'a/data/0' of the archive is compressed",
    ),
    "a smaller size than there is": (
        with_field(GOOD, b"a/data/0", 20, "<II", 8, 8),
        "the storage '0' is to have 4 values of float32, but its entry has 8 bytes",
    ),
    "encrypted": (
        with_field(GOOD, b"a/data/0", 8, "<H", 1),
        "the entry 'a/data/0' of the archive is encrypted",
    ),
    "strongly encrypted": (
        with_field(GOOD, b"a/data/0", 8, "<H", 0x40),
        "the entry 'a/data/0' of the archive is encrypted",
    ),
    "twice the same memory": (overlapping(), "of the archive overlaps another one"),
    "an entry behind the directory": (
        with_field(GOOD, b"a/data/0", 42, "<I", len(GOOD)),
        "the entry 'a/data/0' of the archive overlaps another one",
    ),
    "an entry in the middle of another": (
        with_field(GOOD, b"a/data/0", 42, "<I", 5),
        "of the archive overlaps another one",
    ),
    "a name in the directory that the entry does not have": (
        changed(GOOD, b"a/data/0", b"a/data/1", 2).replace(b"a/data/1", b"a/data/0", 1),
        "the archive has no entry 'a/data/0'",
    ),
    "a wrong checksum": (
        with_field(GOOD, b"a/data/0", 16, "<I", 12345),
        "the archive is damaged: BadZipFile: Bad CRC-32 for file 'a/data/0'",
    ),
    "a later version of zip": (
        with_field(GOOD, b"a/data/0", 6, "<H", 99),
        "the archive is damaged: NotImplementedError: zip file version 9.9",
    ),
    "a directory of many entries": (
        GOOD[:-12] + struct.pack("<IIH", 1 << 30, 0, 0),
        "the archive is damaged: BadZipFile: ",
    ),
    "truncated": (GOOD[:-30], "the archive is damaged: BadZipFile: File is not a zip file"),
    "the first bytes only": (
        b"PK\x03\x04",
        "the archive is damaged: BadZipFile: File is not a zip file",
    ),
    "twice the same name": (None, "the archive has two entries named 'a/data/0'"),
    **{
        f"an entry {entry!r}": (
            archive([("a/data.pkl", PICKLED), (entry, b"\0" * 16)]),
            f"the archive has an entry named {entry!r}, which leads out of it",
        )
        for entry in ("/etc/passwd", "../x", "a/../../x", "a\\..\\x", "..", "c:/x", "\\x")
    },
    "no pickle": (
        archive([("a/data/0", b"")]),
        "the file is a zip archive, but not one that torch.save() wrote: it has no entry data.pkl",
    ),
    "two pickles": (
        archive([("a/data.pkl", PICKLED), ("b/data.pkl", PICKLED)]),
        "the file is a zip archive, but not one that torch.save() wrote: it has several entries "
        "data.pkl",
    ),
    "no storage": (archive([("a/data.pkl", PICKLED)]), "the archive has no entry 'a/data/0'"),
    "an empty pickle": (archive([("a/data.pkl", b"")]), "the file is truncated"),
    "another byte order": (
        archive([("a/data.pkl", PICKLED), ("a/byteorder", b"middle"), ("a/data/0", b"\0" * 16)]),
        "the archive names the byte order b'middle'",
    ),
}


def repeated():
    """zipfile warns when it writes a name twice."""
    data = archive([("a/data.pkl", PICKLED), ("a/data/0", b"\0" * 16), ("a/data/1", b"\0" * 16)])
    return data.replace(b"a/data/1", b"a/data/0")


ENTRIES["twice the same name"] = (repeated(), ENTRIES["twice the same name"][1])

STORAGES = {
    "too few bytes": (
        one(torch_tensor(storage()), b"\0" * 15),
        "the storage '0' is to have 4 values of float32, but its entry has 15 bytes",
    ),
    "too many bytes": (
        one(torch_tensor(storage()), b"\0" * 17),
        "the storage '0' is to have 4 values of float32, but its entry has 17 bytes",
    ),
    "a huge count": (
        one(torch_tensor(storage(count=1 << 40))),
        "the storage '0' is to have 1099511627776 values of float32, but its entry has 16 bytes",
    ),
    "a negative count": (
        one(torch_tensor(storage(count=-4))),
        "the storage '0' is to have -4 values of float32, but its entry has 16 bytes",
    ),
    "a count that is a float": (
        one(torch_tensor(storage(count=4.0))),
        DAMAGED + "the id of a storage",
    ),
    "a key that leads out": (
        one(torch_tensor(storage(key="../../../etc/passwd"))),
        "the archive has no entry 'a/data/../../../etc/passwd'",
    ),
    "a key that is a number": (one(torch_tensor(storage(key=0))), DAMAGED + "the id of a storage"),
    "a kind that is none": (
        one(torch_tensor(storage(b"builtins set"))),
        DAMAGED + "the id of a storage",
    ),
    "a kind that is a dtype": (
        one(torch_tensor(storage(b"torch float32"))),
        DAMAGED + "the id of a storage",
    ),
    "bytes of a storage with a dtype": (
        one(of_bytes(name(b"torch uint16"), memory=storage())),
        DAMAGED + "a tensor that is not made of a storage",
    ),
    "bytes without a dtype": (one(of_bytes(value(3))), DAMAGED + "a tensor without a dtype"),
    "bytes that are no bools": (
        one(of_bytes(name(b"torch bool")), b"\2" * 16),
        DAMAGED + "a bool that is neither True nor False",
    ),
    "bytes that end": (one(of_bytes(name(b"torch float32"), (5,))), fits(4, (5,), (1,), 0)),
    "objects": (
        one(torch_tensor(storage(b"torch UntypedStorage"))),
        outside("torch.UntypedStorage"),
    ),
    "an id that is text": (one(value("0") + b"Q"), DAMAGED + "the id of a storage"),
    "an id that is short": (one(value(("storage",)) + b"Q"), DAMAGED + "the id of a storage"),
    "an id of something else": (
        one(value(("module", 1, 2, 3, 4)) + b"Q"),
        DAMAGED + "the id of a storage",
    ),
    "an id as a line": (one(b"P0\n"), outside("a persistent id")),
    "of two kinds": (
        one(torch_tensor(storage()) + torch_tensor(storage(b"torch IntStorage")) + b"\x86"),
        DAMAGED + "the storage '0' is of two kinds",
    ),
    "of two sizes": (
        one(torch_tensor(storage()) + torch_tensor(storage(count=2)) + b"\x86"),
        DAMAGED + "the storage '0' is of two kinds",
    ),
    "bools that are neither": (
        one(torch_tensor(storage(b"torch BoolStorage", count=2), size=(2,)), b"\1\2"),
        DAMAGED + "a bool that is neither True nor False",
    ),
}

TENSORS = {
    "beyond the storage": (one(torch_tensor(storage(), 0, (5,))), fits(4, (5,), (1,), 0)),
    "beyond it by its offset": (one(torch_tensor(storage(), 1)), fits(4, (4,), (1,), 1)),
    "beyond it by its strides": (
        one(torch_tensor(storage(), 0, (2, 2), (3, 1))),
        fits(4, (2, 2), (3, 1), 0),
    ),
    "before it": (one(torch_tensor(storage(), -1)), fits(4, (4,), (1,), -1)),
    "backwards": (one(torch_tensor(storage(), 3, (4,), (-1,))), fits(4, (4,), (-1,), 3)),
    "an offset far away": (
        one(torch_tensor(storage(), 1 << 62, (0,))),
        fits(4, (0,), (1,), 1 << 62),
    ),
    "strides far away": (
        one(torch_tensor(storage(), 0, (2,), (1 << 62,))),
        fits(4, (2,), (1 << 62,), 0),
    ),
    "more strides than sizes": (
        one(torch_tensor(storage(), 0, (4,), (1, 1))),
        DAMAGED + "the strides of a tensor",
    ),
    "strides that are floats": (
        one(torch_tensor(storage(), 0, (4,), (1.0,))),
        DAMAGED + "the strides of a tensor",
    ),
    "strides that are a list": (
        one(torch_tensor(storage(), 0, (4,), [1])),
        DAMAGED + "the strides of a tensor",
    ),
    "an offset that is text": (
        one(torch_tensor(storage(), "0")),
        DAMAGED + "the strides of a tensor",
    ),
    "negative sizes": (
        one(torch_tensor(storage(), 0, (-4,))),
        DAMAGED + "(-4,) where sizes belong",
    ),
    "sizes that are text": (
        one(torch_tensor(storage(), 0, "4")),
        DAMAGED + "'4' where sizes belong",
    ),
    "more than memory": (
        one(torch_tensor(storage(), 0, (1 << 40, 1 << 40), (0, 0))),
        DAMAGED + "an array that no memory could hold",
    ),
    "a hundred dimensions": (
        one(torch_tensor(storage(), 0, (1,) * 100, (1,) * 100)),
        DAMAGED + "ValueError: ",
    ),
    "of an array": (
        one(torch_tensor(array((4,), F4, b"\0" * 16))),
        DAMAGED + "a tensor that is not made of a storage",
    ),
    "a storage in its place": (
        one(tensor(storage())),
        DAMAGED + "a tensor that is not made of an array",
    ),
    "a number as requires_grad": (
        one(torch_tensor(storage(), 0, (4,), (1,), 1)),
        DAMAGED + "requires_grad is no bool",
    ),
    "integers that require gradients": (
        one(torch_tensor(storage(b"torch IntStorage"), 0, (4,), (1,), True)),
        DAMAGED + "a tensor of modtree.int32 that requires gradients",
    ),
    "expanded and conjugated": (
        one(
            torch_tensor(
                storage(b"torch ComplexFloatStorage", count=2),
                0,
                (1 << 40,),
                (0,),
                False,
                {"conj": True},
            )
        ),
        "the file has too many conjugated tensors of one storage",
    ),
    "conjugated again and again": (
        one(
            b"("
            + torch_tensor(
                storage(b"torch ComplexFloatStorage", count=2), 0, (2,), (1,), False, {"conj": True}
            )
            * 9
            + b"t"
        ),
        "the file has too many conjugated tensors of one storage",
    ),
    "a parameter of a storage": (
        one(
            name(b"torch._utils _rebuild_parameter")
            + tuple_of(storage(), value(True), value({}))
            + b"R"
        ),
        DAMAGED + "a parameter that is not made of a tensor",
    ),
    "a device by a number": (
        one(name(b"torch device") + value((3,)) + b"R"),
        DAMAGED + "the name of a device",
    ),
    "code": (one(name(b"os system") + value(("true",)) + b"R"), outside("os.system")),
}

CASES = {
    f"{group}: {case}": (data, message)
    for group, cases in {"entries": ENTRIES, "storages": STORAGES, "tensors": TENSORS}.items()
    for case, (data, message) in cases.items()
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said(case):
    data, message = CASES[case]
    with pytest.raises(pickle.UnpicklingError, match=re.escape(message)) as caught:
        mt.load(io.BytesIO(data))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said_of_a_map_too(case, tmp_path):
    data, message = CASES[case]
    path = tmp_path / "file.pt"
    path.write_bytes(data)
    with pytest.raises(pickle.UnpicklingError, match=re.escape(message)):
        mt.load(path, mmap=True)


def opened(path):
    with open_checkpoint(path) as checkpoint:
        for key in checkpoint.entries:
            checkpoint.tensor(key)
        return checkpoint


#: What the reader of checkpoints shows: nine times the same tensor is one entry.
SHOWN = {"tensors: conjugated again and again": 0}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said_by_the_reader_of_checkpoints(case, tmp_path):
    data, _ = CASES[case]
    path = tmp_path / "file.pt"
    path.write_bytes(data)
    if case in SHOWN:
        assert opened(path).foreign == SHOWN[case]
        return
    with pytest.raises(CheckpointError) as caught:
        opened(path)
    assert caught.value.file == str(path) and len(str(caught.value)) < 600


def test_in_little_memory():
    """All of them, in a process that may take 256 MiB more than it has after the import."""
    script = Path(__file__).parents[1] / "isolated" / "load_hostile.py"
    command = [sys.executable, script, "test_serialization_archives"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused", str(len(CASES))]


def test_every_part_of_an_archive_is_refused():
    for end in range(4, len(GOOD)):
        with pytest.raises(pickle.UnpicklingError):
            mt.load(io.BytesIO(GOOD[:end]))


@pytest.mark.parametrize("everything", [False, True])
def test_archives_that_are_right(everything):
    def load(data):
        return mt.load(io.BytesIO(data), weights_only=not everything)

    assert load(GOOD).tolist() == [0] * 4
    assert load(archive(SWAPPED)).tolist() == [1, 2, 3, 4]
    wide = load(one(torch_tensor(storage(), 2, (1 << 40,), (0,)), struct.pack("<4f", 1, 2, 3, 4)))
    assert wide.shape == (1 << 40,) and wide[12345].item() == 3
    empty = load(one(torch_tensor(storage(), 4, (0, 1 << 30), (1 << 62, 1 << 61))))
    assert empty.shape == (0, 1 << 30)
    assert load(one(torch_tensor(storage(), 3, (1, 1), (1 << 62, 1 << 62)))).tolist() == [[0]]
    large = load(one(torch_tensor(storage(count=1 << 18), 0, (1 << 18,)), bytes(1 << 20)))
    assert large.shape == (1 << 18,)
    a, b = load(one(torch_tensor(storage()) + torch_tensor(storage(), 1, (2,)) + b"\x86"))
    a[2] = 5
    assert b.tolist() == [0, 5]


@pytest.mark.parametrize(
    "case", [*ENTRIES, *(f"storages: {case}" for case in STORAGES if case != "objects")]
)
def test_archives_are_checked_when_code_is_trusted_too(case):
    data, _ = CASES.get(case) or ENTRIES[case]
    error = EOFError if case == "an empty pickle" else pickle.UnpicklingError
    with pytest.raises(error):
        mt.load(io.BytesIO(data), weights_only=False)


@needs_torch
class FileOfFewWords:
    """What ``load`` asks of a file, and nothing more; it gives less than was wanted."""

    def __init__(self, data):
        self._file = io.BytesIO(data)
        self.seek, self.tell = self._file.seek, self._file.tell

    def read(self, count=-1):
        return self._file.read(min(count, 10_000))


def test_a_file_that_cannot_read_into_memory():
    values = mt.arange(5000.0)
    file = io.BytesIO()
    mt.save({"a": values}, file, format="torch")
    assert mt.equal(mt.load(FileOfFewWords(file.getvalue()))["a"], values)


@needs_torch
def test_conjugated_tensors_of_torch():
    torch = importlib.import_module("torch")
    z = torch.tensor([[1 + 2j, 3 - 1j], [2j, 1]])
    value = {"conj": z.conj().t(), "neg": torch._neg_view(torch.ones(2)), "plain": z}
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    back = mt.load(file)
    for key, theirs in value.items():
        assert back[key].tolist() == theirs.tolist(), key


# -- random changes --------------------------------------------------------------------------------


def valid_files():
    tagged = mt.ones(2)
    tagged.tag = "x"
    value = {
        "state": nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict(),
        "parameter": nn.Parameter(mt.ones(2)),
        "tagged": tagged,
        "meta": mt.zeros(2, 3, device="meta"),
        "arrays": [np.arange(4.0)[::2], np.array(["ab"]), np.float32(2), np.array([True, False])],
        "plain": [1, 1 << 70, 1.5, "text", b"x", {1}, (2, frozenset({(3, 4)})), 1j, mt.float32],
    }
    files = []
    for protocol in range(6):
        file = io.BytesIO()
        mt.save(value, file, pickle_protocol=protocol)
        files.append(file.getvalue())
    tensors = torch_tensor(storage(), 1, (2,), (2,)) + torch_tensor(storage()) + b"\x86"
    return [*files, GOOD, one(tensors), archive(SWAPPED)]


def mutate(rng, data, other):
    """One to four changes: bytes, numbers, pieces moved, left out or taken from another file."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(data)))
        length = int(rng.integers(1, 12))
        kind = rng.integers(6)
        if kind == 0:
            data[at] = rng.integers(256)
        elif kind == 1:
            data[at] ^= 1 << rng.integers(8)
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            start = int(rng.integers(len(other)))
            data[at:at] = other[start : start + length]
        elif kind == 4:
            form, number = [
                ("<I", 0x7FFFFFFF),
                ("<I", 0xFFFFFFFF),
                ("<Q", 1 << 62),
                ("<H", 0xFFFF),
            ][rng.integers(4)]
            data[at : at + struct.calcsize(form)] = struct.pack(form, number)
        else:
            start = int(rng.integers(len(data)))
            data[at : at + length] = data[start : start + length]
        data = data or bytearray(b".")
    return bytes(data)


def fixed(data):
    """With the right checksums, so that changes reach further than the archive's own check."""
    data = bytearray(data)
    at = data.find(b"PK\x01\x02")
    while 0 <= at <= len(data) - 46:
        size, _, length, extra = struct.unpack_from("<IIHH", data, at + 20)
        (start,) = struct.unpack_from("<I", data, at + 42)
        if start + 30 + length + size > len(data):
            break
        body = data[start + 30 + length : start + 30 + length + size]
        for place in (at + 16, start + 14):
            struct.pack_into("<I", data, place, zipfile.crc32(bytes(body)))
        at = data.find(b"PK\x01\x02", at + 46 + length + extra)
    return bytes(data)


def test_changed_files_are_read_or_refused():
    """MODTREE_MUTATIONS sets how many; a failure names its number, which alone makes the file."""
    files = valid_files()
    for data in files:
        mt.load(io.BytesIO(data))
    read = refused = 0
    for seed in range(int(os.environ.get("MODTREE_MUTATIONS", "6000"))):
        rng = np.random.default_rng(seed)
        data = files[seed % len(files)]
        data = mutate(rng, data, files[rng.integers(len(files))])
        if rng.integers(4) and data[:2] == b"PK":
            data = fixed(data)
        try:
            mt.load(io.BytesIO(data), map_location="meta" if seed % 3 == 0 else None)
            read += 1
        except pickle.UnpicklingError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"file {seed}") from error
    assert read and refused


@pytest.mark.parametrize("at", [100, 9 << 20, (18 << 20) - 1])
def test_the_checksum_of_a_large_entry_is_compared(at, tmp_path):
    path = tmp_path / "large.pt"
    values = np.arange(18 << 20, dtype=np.uint8)
    mt.save({"w": mt.from_numpy(values)}, path, format="torch")
    assert np.array_equal(mt.load(path)["w"].numpy(), values)
    data = bytearray(path.read_bytes())
    start = data.index(values[:4096].tobytes())
    data[start + at] ^= 1
    path.write_bytes(data)
    with pytest.raises(pickle.UnpicklingError, match="Bad CRC-32 for file 'archive/data/0'"):
        mt.load(path)
    path.write_bytes(data[: start + at])
    with pytest.raises(pickle.UnpicklingError):
        mt.load(path)
