# SPDX-License-Identifier: BSD-3-Clause
"""Files of torch before 1.6, or in its form of then: pickles one after the other, and behind them
the memory of each storage.
"""

from __future__ import annotations

import io
import os
import struct
import sys
from typing import Any

from modtree.files.pickled.builder import RecordBuilder
from modtree.files.pickled.plain import BUILDERS, MAKERS, NAMES, plain_unpickler
from modtree.files.pickled.unpickle import Unpickler, UnpicklingError
from modtree.files.torch.names import torch_unpickler
from modtree.files.torch.storages import (
    BYTES,
    STORAGES,
    AnyStorages,
    Memory,
    Storage,
    StorageKind,
    memory_of,
    storage_of,
)

# -- the bytes of a storage, which torch pickles as a file of its own in this form -----------------

#: The first value in a file of torch before 1.6.
OLD_TORCH = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_COUNT = struct.Struct("<q")
_NAMES = {
    **NAMES,
    **{("torch", name): kind for name, kind in STORAGES.items()},
    ("torch.storage", "UntypedStorage"): BYTES,
}


def storage_in(data: Any) -> tuple[StorageKind, bytearray]:
    """The kind of a storage and its bytes.

    Raises:
        UnpicklingError: It is not what torch writes of one.
    """
    _require_storage(type(data) is bytes)
    file = io.BytesIO(data)
    magic, version, system, pid, keys = (
        Unpickler(file, _NAMES, MAKERS, BUILDERS, lambda pid: pid).load() for _ in range(5)
    )
    _require_storage(magic == OLD_TORCH and version == _VERSION and type(system) is dict)
    _require_storage(
        type(pid) is tuple and len(pid) == 6 and pid[0] == "storage" and pid[5] is None
    )
    kind, key, count = storage_of(pid[1], pid[2], pid[4])
    _require_storage(keys == [key])
    if system.get("little_endian") is not (sys.byteorder == "little"):
        raise UnpicklingError("the file has a tensor of torch in another byte order")
    start = file.tell() + _COUNT.size
    _require_storage(len(data) >= start and _COUNT.unpack(data[start - 8 : start]) == (count,))
    if len(data) - start != count * kind.stored.itemsize:
        raise UnpicklingError(
            f"the storage of a tensor is to have {count} values of {kind.stored}, but "
            f"{len(data) - start} bytes follow"
        )
    return kind, bytearray(data[start:])


def _require_storage(condition: bool) -> None:
    if not condition:
        raise UnpicklingError("the file is damaged: the storage of a tensor of torch")


# -- files -----------------------------------------------------------------------------------------

#: How many bytes tell.
HEAD = 32
#: The first value in such a file, as a pickle has it, and its end.
_MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."


def begins_old(head: bytes) -> bool:
    """Whether the first bytes of a file say that it is one."""
    return head[:1] == b"\x80" and _MAGIC in head[:HEAD]  # further on it is a file in a pickle


class OldStorages(AnyStorages):
    """The storages of such a file, which are read when they are asked for.

    Args:
        file: Open for reading bytes, as long as storages are read.
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self._known: dict[str, Storage] = {}
        self._starts: dict[str, int] = {}

    def storage(self, pid: Any) -> Storage:
        """The storage behind a persistent id; nothing of it is read."""
        _require(type(pid) is tuple and len(pid) == 6 and pid[0] == "storage")
        if pid[5] is not None:
            raise UnpicklingError(
                "the file has storages that are parts of others, as torch before 0.4 wrote them: "
                "load it with torch, and save it again"
            )
        storage = storage_of(pid[1], pid[2], pid[4])
        _require(storage.length >= 0 and self._known.setdefault(storage.key, storage) == storage)
        return storage

    def find(self) -> None:
        """Finds where the storages lie: behind the pickle, at whose end the file is.

        Raises:
            UnpicklingError: The file is damaged.
        """
        keys = plain_unpickler(self._file).load()
        _require(type(keys) is list and all(type(key) is str for key in keys))
        _require(len(set(keys)) == len(keys) and set(keys) == set(self._known))
        at = self._file.tell()
        end = self._file.seek(0, os.SEEK_END)
        for key in keys:
            storage = self._known[key]
            self._file.seek(at)
            count = self._file.read(_COUNT.size)
            at += _COUNT.size
            size = storage.length * storage.kind.stored.itemsize
            if at + size > end:
                raise UnpicklingError(
                    f"the file is truncated: the storage {key!r:.80} has {size} bytes, "
                    f"{max(0, end - at)} are left"
                )
            _require(_COUNT.unpack(count) == (storage.length,))
            self._starts[key] = at
            at += size
        self._end = at

    def _read(self, storage: Storage) -> Memory:
        data = bytearray(storage.length * storage.kind.stored.itemsize)
        self._file.seek(self._starts[storage.key])
        whole, at = memoryview(data), 0
        while at < len(data):
            found = self._file.read(len(data) - at)
            if not found:
                raise UnpicklingError("the file is truncated")
            whole[at : at + len(found)] = found
            at += len(found)
        return memory_of(data, storage.kind)

    def load(self, pid: Any) -> Memory:
        """The numbers behind a persistent id."""
        return self.memory(self.storage(pid))

    def let_go(self) -> None:
        self._memories.clear()

    def finish(self) -> None:
        """Goes to the end of the last storage, where torch's own ``load`` ends."""
        self._file.seek(self._end)


def find_storages(file: Any, options: Any) -> tuple[OldStorages, Any]:
    """The storages of such a file, and a stream that gives its pickle.

    Args:
        file: Open for reading bytes, at its beginning.
        options: For the unpickler.

    Raises:
        UnpicklingError: The file is damaged.
    """
    _read_head(file)
    start = file.tell()
    storages = OldStorages(file)
    torch_unpickler(file, RecordBuilder(), storages.storage, options, True).load()
    storages.find()
    file.seek(start)
    return storages, _Apart(file)  # storages are read on the way


def _read_head(file: Any) -> None:
    magic, version, system = (plain_unpickler(file).load() for _ in range(3))
    _require(type(magic) is int and version == _VERSION and type(system) is dict)
    if system.get("little_endian") is not (sys.byteorder == "little"):
        raise UnpicklingError("the file was written in another byte order")


def _require(condition: bool) -> None:
    if not condition:
        raise UnpicklingError("the file is damaged: the storages of a file in torch's old form")


class _Apart:
    """Reads a file whose position others change."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._at = file.tell()

    def _there(self) -> Any:
        self._file.seek(self._at)
        return self._file

    def read(self, count: int = -1) -> bytes:
        found = self._there().read(count)
        self._at += len(found)
        return found

    def readline(self, count: int = -1) -> bytes:
        found = self._there().readline(count)
        self._at += len(found)
        return found

    def seek(self, at: int, whence: int = 0) -> int:
        self._at = self._there().seek(at, whence)
        return self._at

    def tell(self) -> int:
        return self._at
