# SPDX-License-Identifier: BSD-3-Clause
"""Files in the place of a checkpoint: the error names what each is, and what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

import modtree as mt
from modtree.checkpoints import open_checkpoint, verify


def archive():
    file = io.BytesIO()
    mt.save({"w": mt.arange(5000)}, file, format="torch")
    return file.getvalue()


def as_text(data):
    return data.replace(b"\n", b"\r\n")


def safetensors():
    file = io.BytesIO()
    mt.save({"w": mt.ones(2)}, file, format="torch")
    return file.getvalue()


def in_tar(name="model.pt"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        opened.addfile(entry, io.BytesIO(b"1234"))
    return file.getvalue()


def in_zip(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr(name, b"1234")
    return file.getvalue()


def npy():
    file = io.BytesIO()
    np.save(file, np.ones(2))
    return file.getvalue()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2\nsize 268435456\n"
XML = b"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>"
FILES = {
    "empty": (lambda: b"", "the file is empty"),
    "a pointer": (lambda: LFS, "a Git LFS pointer to a file of 268,435,456 bytes"),
    "a page": (lambda: b"\n<!DOCTYPE html><html><body>Log in", "it is a web page"),
    "an error": (lambda: XML, "an XML document that says AccessDenied"),
    "gzip": (lambda: gzip.compress(safetensors()), "compressed with gzip: unpack it first"),
    "bzip2": (lambda: bz2.compress(b"x" * 99), "compressed with bzip2"),
    "xz": (lambda: lzma.compress(b"x" * 99), "compressed with xz"),
    "tar": (lambda: in_tar("text"), "it is a tar archive: modtree.load_file(path) reads a check"),
    "old torch": (lambda: in_tar("sys_info"), "it is a file of torch before 0.1.10: torch.load"),
    "zip": (lambda: in_zip("text"), "a zip archive, but not one that torch.save() wrote"),
    "npy": (npy, "an array of NumPy"),
    "package": (lambda: in_zip("net/.data/extern_modules"), "a package of torch.package"),
    "lz4": (lambda: b"\x04\x22\x4d\x18" + bytes(99), "compressed with lz4: unpack it first"),
    "pte": (lambda: bytes(4) + b"ET12" + bytes(99), "a program of ExecuTorch"),
    "flax": (lambda: b"\x81\xa6params\x81\xa1a\x01", "it is msgpack, as flax writes it"),
    "zeros and more": (lambda: bytes(4096) + b"weights", "it begins with zeros and goes on"),
    "export": (lambda: in_zip("net/archive_format"), "a program of torch.export"),
    "a json error": (
        lambda: b'{"error": "Repository not found"}',
        'an answer of a server, \'{"error": "Repository not found"}\'',
    ),
    "half": (lambda: archive()[:-100], "it ends before its directory, as half of a download"),
    "an archive as text": (lambda: as_text(archive()), "line endings were changed"),
    "zeros": (lambda: bytes(4096), "it begins with zeros"),
    "encrypted": (lambda: b"Salted__" + bytes(range(64)), "encrypted by openssl"),
    "pgp": (lambda: b"-----BEGIN PGP MESSAGE-----\n\nhQEM", "encrypted by PGP"),
    "words": (lambda: b"Entry not found\n", "not a known checkpoint format: it is text, 'Entry"),
    "as text": (lambda: b"\x80\x02\x8a\r\nl\xfc\x9cF\xf9 j\xa8P\x19.", "line endings were changed"),
}


#: What is a checkpoint of which something was lost.
LOST = {"empty", "half", "zeros", "an archive as text", "as text"}


@pytest.mark.parametrize("ending", [".safetensors", ".pt", ".bin", ""])
@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_not_a_checkpoint_is_named(case, ending, tmp_path):
    make, message = FILES[case]
    path = tmp_path / f"model{ending}"
    path.write_bytes(make())
    with pytest.raises(mt.CheckpointError) as caught:
        open_checkpoint(path)
    assert message in str(caught.value) and caught.value.file == str(path)
    (problem,) = verify(path)
    assert message in problem.message
    assert problem.kind == ("damaged" if case in LOST else "not read")
    for foreign in (None, "stand-in"):
        with pytest.raises(pickle.UnpicklingError) as caught:
            mt.load(path, foreign=foreign)
        assert message in str(caught.value)


@pytest.mark.parametrize("ending", ["safetensors", "gguf", "npz", "pt"])
def test_half_of_a_file_is_named_as_that(ending, tmp_path):
    content = {
        "safetensors": b"\x50" + bytes(7) + b"{}",
        "gguf": b"GGUF\3\0\0\0",
        "npz": archive()[:300],
        "pt": archive()[:300],
    }[ending]
    (tmp_path / f"model.{ending}").write_bytes(content)
    with pytest.raises(mt.CheckpointError, match="the file is truncated|ends before its directory"):
        open_checkpoint(tmp_path / f"model.{ending}")


def test_a_safetensors_file_whose_line_endings_were_changed(tmp_path):
    mt.save_file({"w": mt.arange(5000)}, tmp_path / "a.safetensors")
    path = tmp_path / "b.safetensors"
    path.write_bytes(as_text((tmp_path / "a.safetensors").read_bytes()))
    with pytest.raises(mt.CheckpointError, match="line endings were changed"):
        open_checkpoint(path)
    path.write_bytes((tmp_path / "a.safetensors").read_bytes() + b"\r\n")
    with pytest.raises(mt.CheckpointError, match="2 bytes behind the last tensor"):
        open_checkpoint(path)


@pytest.mark.parametrize("content", [b"PAR1" + bytes(40), b"\x82\xc0\x01", b"hello"])
def test_what_does_not_begin_as_a_pickle_is_not_damaged(content):
    """Nor is it advised to trust it, as of a pickle with other objects."""
    with pytest.raises(pickle.UnpicklingError, match="^not a known checkpoint format: it"):
        mt.load(content)
    assert mt.load(pickle.dumps("hello", protocol=0)) == "hello"


def test_a_part_that_is_not_there_is_not_damage(tmp_path):
    path = tmp_path / "a.pt"
    mt.save({"model": {"w": mt.ones(1)}, "epoch": 1}, path)
    (problem,) = verify(path, at="ema")
    assert problem.kind == "not read" and "it has no part 'ema'" in problem.message


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file"),
        (b'{"metadata": {}, "weight_map": {}}', "JSON, as the index of shards is"),
        (b"GGUF\3" + bytes(99), "a GGUF file"),
    ],
)
def test_load_names_what_load_file_reads(head, what):
    with pytest.raises(pickle.UnpicklingError, match=f"the file is {what}: read it with modtree"):
        mt.load(head)
