# SPDX-License-Identifier: BSD-3-Clause
"""Reading an archive of numpy.savez(), without pickles."""

from __future__ import annotations

import ast
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    Entry,
    closed_on_error,
    shortened,
)
from modtree.files.checkpoint.dtypes import MOST_DIMENSIONS
from modtree.files.pickled.plain import check_bools, check_sizes
from modtree.files.pickled.stand_in import StandIn, in_words
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.sources.source import Source
from modtree.files.sources.stores import RemoteError

_PLAIN = re.compile(r"([<>=|]?)(b1|[iu][1248]|f[248]|c8|c16)")
_LONGEST_HEADER = 10_000
_MOST_PACKED = 1_100  # to one byte of an entry: the format reaches 1,032
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x61


class _Array(NamedTuple):
    """An array: its entry, where in it the values begin, and what they are."""

    entry: zipfile.ZipInfo
    start: int
    dtype: np.dtype
    shape: tuple[int, ...]
    is_fortran: bool

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


class NpzCheckpoint(Checkpoint):
    """An archive of arrays. Those of objects, text or records are values, which say what they are.

    Args:
        source: The file.
    """

    format = "npz"
    is_read_to_verify = True

    def __init__(self, source: Source) -> None:
        self.path = path = source.name
        self.metadata = {}
        self._file: Any = source.open()
        with closed_on_error(self):
            with self._errors():
                self._zip = zipfile.ZipFile(self._file)
            self._arrays: dict[str, _Array] = {}
            values: dict[str, Any] = {}
            places: dict[str, int] = {}
            self._check_entries()
            for number, entry in enumerate(self._zip.infolist()):
                key = entry.filename.removesuffix(".npy")
                if key in self._arrays or key in values:
                    raise CheckpointError("the archive has it twice", path, key)
                found = self._array(entry, key)
                if isinstance(found, _Array):
                    self._arrays[key] = found
                else:
                    values[key], places[key] = found, number
            self.values, self.places = values, places
        self.entries = {
            key: Entry(key, array.shape, array.dtype.name, array.nbytes, path)
            for key, array in self._arrays.items()
        }

    def _check_entries(self) -> None:
        """An archive that is not damaged unpacks to what its size allows."""
        size = self._file.seek(0, 2)
        packed = 0
        for entry in self._zip.infolist():
            packed += entry.compress_size
            if entry.compress_type not in _METHODS or entry.flag_bits & _ENCRYPTED:
                raise CheckpointError(
                    f"the entry {shortened(entry.filename)} is encrypted or packed in another way "
                    f"than numpy.savez() does it",
                    self.path,
                )
            if entry.file_size > (entry.compress_size + 1) * _MOST_PACKED:
                raise CheckpointError(
                    f"the archive is damaged: {entry.file_size:,} bytes are to be packed in "
                    f"{entry.compress_size:,}",
                    self.path,
                )
        if packed > size:
            raise CheckpointError("the archive is damaged: its entries overlap", self.path)

    def _array(self, entry: zipfile.ZipInfo, key: str) -> Any:
        if not entry.filename.endswith(".npy"):
            return in_words("zipfile.ZipInfo", f"file of {entry.file_size:,} B")
        with self._errors(key), self._zip.open(entry) as opened:
            descr, is_fortran, shape, start = _read_header(opened)
        plain = _PLAIN.fullmatch(descr) if type(descr) is str else None
        try:
            count = check_sizes(shape, 16)
        except UnpicklingError as error:
            raise CheckpointError(str(error), self.path, key) from None
        if plain is None:
            return _described(descr, shape)
        dtype = np.dtype(descr)
        if start + count * dtype.itemsize != entry.file_size:
            raise CheckpointError(
                f"the archive is damaged: {list(shape)} of {dtype.name} takes "
                f"{count * dtype.itemsize:,} bytes, and {entry.file_size - start:,} are there",
                self.path,
                key,
            )
        return _Array(entry, start, dtype, shape, is_fortran)

    def array(self, key: str) -> np.ndarray:
        array = self._arrays[key]
        pieces = self._bytes_of(key, 1 << 20)
        with self._errors(key):
            whole = b"".join(pieces)  # grows with what is there, whatever its header says
            values = np.frombuffer(bytearray(whole), array.dtype)
            if array.dtype.kind == "b":
                check_bools(values.view(np.uint8).data)
            shape = array.shape[::-1] if array.is_fortran else array.shape
            values = values.reshape(shape)
        values = values.T if array.is_fortran else values
        return values.astype(array.dtype.newbyteorder("="), copy=False)

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        array = self._arrays[key]
        is_little = array.dtype.newbyteorder("<") == array.dtype
        if array.is_fortran or not is_little or array.dtype.kind == "b":
            yield from super().chunks(key, size)
        else:
            yield from (memoryview(piece) for piece in self._bytes_of(key, size))

    def _bytes_of(self, key: str, size: int) -> Iterator[bytes]:
        if self._file.closed:
            raise ValueError(f"the checkpoint {self.path} is closed")
        array = self._arrays[key]
        left = array.nbytes
        with self._errors(key), self._zip.open(array.entry) as opened:
            opened.read(array.start)
            while left:
                piece = opened.read(min(size, left))
                if not piece:
                    raise CheckpointError("the file is truncated", self.path, key)
                left -= len(piece)
                yield piece
            opened.read(1)  # at the end of an entry its checksum is compared

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        for key in self._arrays:
            try:
                for piece in self._bytes_of(key, 1 << 20):
                    advance(len(piece))
            except CheckpointError as error:
                yield error

    def _errors(self, key: str | None = None) -> Any:
        return _Errors(self.path, key)

    def close(self) -> None:
        self._file.close()


class _Errors:
    """What is wrong with an archive, as an error of checkpoints."""

    def __init__(self, path: str, key: str | None) -> None:
        self._path, self._key = path, key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, (CheckpointError, RemoteError, MemoryError)) or error is None:
            return
        if isinstance(error.__context__, RemoteError):  # which zipfile takes for damage
            raise error.__context__
        damages = (
            zipfile.BadZipFile,
            zlib.error,
            UnpicklingError,
            EOFError,
            OSError,
            ValueError,
            NotImplementedError,
            RuntimeError,
        )
        if isinstance(error, damages):
            text = f"the archive is damaged: {type(error).__name__}: {shortened(str(error))}"
            raise CheckpointError(text, self._path, self._key) from None


def _read_header(opened: Any) -> tuple[Any, bool, tuple[int, ...], int]:
    """dtype, order, shape and length of the header of an array.

    Raises:
        ValueError: It is damaged.
    """
    magic = opened.read(8)
    if len(magic) != 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise ValueError(f"an array begins with {magic!r}")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(opened.read(width), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    text = opened.read(length).decode("utf-8" if magic[6] == 3 else "latin-1")
    try:
        facts = ast.literal_eval(text.strip())
        descr, is_fortran, shape = facts["descr"], facts["fortran_order"], facts["shape"]
    except (SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise ValueError(f"a header that is not one: {type(error).__name__}") from None
    if type(shape) is not tuple or len(shape) > MOST_DIMENSIONS or type(is_fortran) is not bool:
        raise ValueError(f"the shape {shortened(shape)}")
    return descr, is_fortran, shape, 8 + width + length


def _described(descr: Any, shape: tuple[int, ...]) -> StandIn:
    """What an array is that is not of numbers."""
    kind = descr if type(descr) is str else "records"
    words = {"O": "objects, which are pickled", "V": "raw bytes"}.get(kind.lstrip("<>|=")[:1], kind)
    text = f"array of {shortened(words, 60)[1:-1]} {list(shape)}"
    return in_words("numpy.ndarray", text)
