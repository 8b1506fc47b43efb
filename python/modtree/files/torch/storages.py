# SPDX-License-Identifier: BSD-3-Clause
"""The storages of torch's files: the memory of tensors, one record of an archive for each."""

from __future__ import annotations

import abc
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from modtree import _C
from modtree.files.checkpoint.dtypes import widened
from modtree.files.checkpoint.other_files import not_damaged, what_an_archive_is
from modtree.files.pickled.plain import check_bools
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.torch.archive import Archive


class StorageKind:
    """A name such as torch.FloatStorage: which numbers a record holds.

    Attributes:
        name: Its name in torch.
        dtype: torch's name of the dtype.
        stored: What NumPy reads the numbers as, at first.
    """

    def __init__(self, name: str, dtype: str, stored: str | None = None) -> None:
        self.name = name
        self.dtype = dtype
        self.stored = np.dtype(stored or dtype)

    def __repr__(self) -> str:
        return f"‹torch.{self.name}›"


STORAGES = {
    name: StorageKind(name, dtype, "uint16" if dtype == "bfloat16" else None)
    for name, dtype in {
        "BFloat16Storage": "bfloat16",
        "BoolStorage": "bool",
        "ByteStorage": "uint8",
        "CharStorage": "int8",
        "ComplexDoubleStorage": "complex128",
        "ComplexFloatStorage": "complex64",
        "DoubleStorage": "float64",
        "FloatStorage": "float32",
        "HalfStorage": "float16",
        "IntStorage": "int32",
        "LongStorage": "int64",
        "ShortStorage": "int16",
    }.items()
}
BYTES = StorageKind("UntypedStorage", "uint8")
#: Those of tensors that are not read: what their numbers take in a file.
OTHER_STORAGES = {
    name: StorageKind(name, dtype, stored)
    for name, dtype, stored in (
        ("ComplexHalfStorage", "complex32", "uint32"),
        ("QInt8Storage", "qint8", "int8"),
        ("QUInt8Storage", "quint8", "uint8"),
        ("QInt32Storage", "qint32", "int32"),
        ("QUInt4x2Storage", "quint4x2", "uint8"),
        ("QUInt2x4Storage", "quint2x4", "uint8"),
    )
}


class Memory(np.ndarray):
    """The numbers of a storage, ``storage``: only tensors are made of it. ``copies_left`` bounds
    the tensors that cannot be views.
    """

    copies_left: int
    is_swapped: bool
    is_mapped: bool
    storage: Storage


class Storage(NamedTuple):
    """A storage of which nothing was read."""

    kind: StorageKind
    key: str
    length: int

    @property
    def is_stand_in(self) -> bool:
        """Whether it is useless without the file."""
        return True

    def __repr__(self) -> str:
        return f"‹torch.{self.kind.name} of {self.length} values›"


def storage_of(kind: Any, key: Any, count: Any) -> Storage:
    """The parts of a storage's id, checked."""
    if type(kind) is not StorageKind or type(key) is not str or type(count) is not int:
        raise UnpicklingError("the file is damaged: the id of a storage")
    return Storage(kind, key, count)


def memory_of(data: Any, kind: StorageKind, swapped: bool = False, mapped: bool = False) -> Memory:
    """The numbers in bytes that nobody else writes to."""
    if kind.dtype == "bool":
        check_bools(data)
    numbers = np.frombuffer(data, kind.stored)
    if swapped:
        numbers = numbers.byteswap()
    if kind.dtype == "bfloat16":
        numbers = _bfloat16(numbers)
    memory = numbers.view(Memory)
    memory.copies_left = 8 * numbers.size
    memory.is_swapped = swapped
    memory.is_mapped = mapped
    return memory


def _bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Of numbers that are the upper halves of float32 numbers; as float32 where the package that
    has the dtype is not installed.
    """
    try:
        return numbers.view(_C._stored_dtypes["bfloat16"].dtype)
    except TypeError:
        return widened(numbers)


def bytes_of_memory(memory: Memory) -> memoryview:
    """The bytes of a storage.

    Raises:
        UnpicklingError: It was read as other numbers than it has.
    """
    kind = memory.storage.kind
    if memory.itemsize != kind.stored.itemsize:
        raise UnpicklingError(f"reading {kind.dtype} takes the package ml_dtypes")
    plain: Any = memory.view(np.ndarray).view(np.uint8)
    return memoryview(plain)


class AnyStorages(abc.ABC):
    """The storages of a file: what they have that has neither checksums, code nor a map."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memories: dict[str, Memory] = {}

    @abc.abstractmethod
    def _read(self, storage: Storage) -> Memory:
        """The numbers of a storage, for the first time."""

    def memory(self, storage: Storage) -> Memory:
        """The numbers of a storage: the same memory at each call."""
        with self._lock:
            known = self._memories.get(storage.key)
            if known is None:
                known = self._memories[storage.key] = self._read(storage)
                known.storage = storage
        return known

    def _bytes(self, storage: Storage) -> memoryview:
        return bytes_of_memory(self.memory(storage))

    def pieces(self, storage: Storage, at: int, count: int, size: int) -> Iterator[memoryview]:
        """Bytes of a storage from ``at`` on, little-endian, at most ``size`` at once. Each piece is
        valid until the next one is asked for.
        """
        data = self._bytes(storage)
        for begin in range(at, at + count, size):
            yield data[begin : min(begin + size, at + count)]

    @property
    def file_map(self) -> Any:
        """The map that memory is in, or None."""
        return None

    def code(self, module: str) -> str:
        """The code of a module of TorchScript, such as "__torch__/net"; "" where there is none."""
        return ""

    def compare_checksums(self) -> None:  # noqa: B027
        """From now on, of what is read for the first time."""

    def damages(self) -> Iterator[tuple[str | None, int, str]]:
        """Compares all checksums: the storage (None for other entries), its bytes, and what is
        wrong with it, if anything.
        """
        return iter(())

    def let_go(self) -> None:  # noqa: B027
        """Gives back the memory of what was read, and of changes to it."""

    def finish(self) -> None:  # noqa: B027
        """Says that all was read."""


class InlineStorages(AnyStorages):
    """The storages of a pickle that holds their bytes itself."""

    def __init__(self) -> None:
        super().__init__()
        self._data: list[bytearray] = []

    def add(self, kind: StorageKind, data: bytearray) -> Storage:
        """The storage that has these bytes."""
        self._data.append(data)
        return Storage(kind, str(len(self._data) - 1), len(data) // kind.stored.itemsize)

    def bytes(self, storage: Storage) -> bytearray:
        """The bytes themselves."""
        return self._data[int(storage.key)]

    def _read(self, storage: Storage) -> Memory:
        return memory_of(self.bytes(storage), storage.kind)

    def _bytes(self, storage: Storage) -> memoryview:
        return memoryview(self.bytes(storage))


class Storages(AnyStorages):
    """The storages of an archive in torch's form.

    Args:
        archive: The archive.
        unaligned: Whether numbers may lie at any address. Otherwise they are copied.
    """

    def __init__(self, archive: Archive, unaligned: bool = False) -> None:
        super().__init__()
        self._archive = archive
        self._unaligned = unaligned
        pickles = [name for name in archive.names() if name.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1:
            has = "several entries" if pickles else "no entry"
            other = None if pickles else what_an_archive_is(archive.names())
            raise not_damaged(
                UnpicklingError(
                    "the file is a zip archive, but not one that torch.save() wrote: "
                    f"{other or f'it has {has} data.pkl'}"
                )
            )
        self._folder = pickles[0].rpartition("data.pkl")[0]
        self.pickled = archive.read(pickles[0])
        self._swapped = self._byte_order() != sys.byteorder
        self._known: dict[str, Storage] = {}

    def _byte_order(self) -> str:
        name = self._folder + "byteorder"
        if name not in self._archive.names():
            return "little"
        order = bytes(self._archive.read(name))
        if order not in (b"little", b"big"):
            raise UnpicklingError(f"the archive names the byte order {order!r:.80}")
        return order.decode()

    def storage(self, pid: Any) -> Storage:
        """The storage behind a persistent id; nothing of it is read."""
        if type(pid) is not tuple or len(pid) != 5 or pid[0] != "storage":
            raise UnpicklingError("the file is damaged: the id of a storage")
        storage = storage_of(pid[1], pid[2], pid[4])
        known = self._known.get(storage.key)
        if known is not None:
            if known != storage:
                raise UnpicklingError(
                    f"the file is damaged: the storage {storage.key!r:.80} is of two kinds"
                )
            return known
        kind, key, length = storage
        size = self._archive.size(f"{self._folder}data/{key}")
        if length * kind.stored.itemsize != size:
            raise UnpicklingError(
                f"the storage {key!r:.80} is to have {length} values of {kind.stored}, but its "
                f"entry has {size} bytes"
            )
        self._known[key] = storage
        return storage

    def load(self, pid: Any) -> Memory:
        """The numbers behind a persistent id."""
        return self.memory(self.storage(pid))

    def code(self, module: str) -> str:
        name = f"{self._folder}code/{module}.py"
        if name not in self._archive.names():
            return ""
        return self._archive.code(name).decode("utf-8", "replace")

    def compare_checksums(self) -> None:
        self._archive.compare_checksums()

    def damages(self) -> Iterator[tuple[str | None, int, str]]:
        folder = f"{self._folder}data/"
        for name in self._archive.names():
            key = name.removeprefix(folder) if name.startswith(folder) else None
            reason = ""
            try:
                self._archive.check(name)
            except UnpicklingError as error:
                reason = str(error)
            yield key, self._archive.size(name), reason

    def let_go(self) -> None:
        if self._archive.file_map is None:
            self._memories.clear()
        self._archive.let_go()

    @property
    def file_map(self) -> Any:
        return self._archive.file_map

    def pieces(self, storage: Storage, at: int, count: int, size: int) -> Iterator[memoryview]:
        name = f"{self._folder}data/{storage.key}"
        if not (
            self._archive.file_map is not None or self._swapped or storage.key in self._memories
        ):
            yield from self._archive.pieces(name, at, count, size)
            return
        place = self._archive.mapped(name)
        if place is None or self._swapped:
            data, start = bytes_of_memory(self.memory(storage)), 0
        else:
            data, start = memoryview(place[0]), place[1]
        for begin in range(at, at + count, size):
            yield data[start + begin : start + min(begin + size, at + count)]

    def _read(self, storage: Storage) -> Memory:
        kind, key, length = storage
        name = f"{self._folder}data/{key}"
        place = self._archive.mapped(name)
        # NumPy relies on what a bool is, and a file may change.
        if place is None or self._swapped or kind.dtype == "bool" or not length:
            return memory_of(self._archive.read(name), kind, self._swapped)
        file, start = place
        if start % kind.stored.alignment and not self._unaligned:
            return memory_of(self._archive.read(name), kind)
        data = memoryview(file)[start : start + length * kind.stored.itemsize]
        return memory_of(data, kind, mapped=True)
