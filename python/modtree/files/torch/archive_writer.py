# SPDX-License-Identifier: BSD-3-Clause
"""Writing zip archives whose entries lie in the file as they are, aligned so that tensors can be
made over a map of it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["ArchiveWriter"]

_ALIGNMENT = 64
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")
_BEHIND = struct.Struct("<4s3I")
_BEHIND_64 = struct.Struct("<4sI2Q")
_CHECKSUM_FOLLOWS = 1 << 3
_HEAD = struct.Struct("<2H")  # of an extra field: its id and its length
_SIZES_64 = 1
_PADDING = 0x4246  # the id that torch gives it
_MANY = 0xFFFF
_LARGE = 0xFFFFFFFF
_PLAIN, _VERSION_64 = 20, 45  # versions of zip
_DATE = 1 << 5 | 1  # 1980-01-01, the first that the format knows: equal content, equal file
_PIECE = 1 << 30


class _Written(NamedTuple):
    name: bytes
    checksum: int
    size: int
    start: int
    flags: int


class ArchiveWriter:
    """An archive at the place where a file stands.

    Args:
        file: Has ``write``; it need not be able to seek.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._position = 0
        self._entries: list[_Written] = []

    def _write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE):
            self._file.write(view[start : start + _PIECE])
        self._position += len(view)

    def add(self, name: str, data: Any) -> None:
        """Writes an entry.

        Args:
            name: Its name, in ASCII.
            data: Its bytes, in any object that gives its memory.
        """
        size = memoryview(data).nbytes
        self._begin(name, size, zlib.crc32(data))
        self._write(data)

    def add_pieces(self, name: str, size: int, pieces: Iterable[memoryview]) -> None:
        """Writes an entry whose checksum is known when it was written, and follows it.

        Args:
            name: Its name, in ASCII.
            size: Its bytes.
            pieces: They, one after the other.
        """
        entry = self._begin(name, size, None)
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
            self._write(piece)
        form = _BEHIND_64 if size >= _LARGE else _BEHIND
        self._write(form.pack(b"PK\x07\x08", checksum, size, size))
        self._entries[-1] = entry._replace(checksum=checksum)

    def _begin(self, name: str, size: int, checksum: int | None) -> _Written:
        """Writes what comes before the bytes of an entry."""
        encoded = name.encode("ascii")
        flags = _CHECKSUM_FOLLOWS if checksum is None else 0
        entry = _Written(encoded, checksum or 0, size, self._position, flags)
        large = size >= _LARGE
        extra = _HEAD.pack(_SIZES_64, 16) + struct.pack("<2Q", size, size) if large else b""
        extra += self._padding(_LOCAL.size + len(encoded) + len(extra))
        shown = _LARGE if large else size
        version = _VERSION_64 if large else _PLAIN
        sizes = entry.checksum, shown, shown, len(encoded), len(extra)
        head = _LOCAL.pack(b"PK\x03\x04", version, flags, 0, 0, _DATE, *sizes)
        self._write(head + encoded + extra)
        self._entries.append(entry)
        return entry

    def _padding(self, used: int) -> bytes:
        """An extra field after which a multiple of the alignment comes."""
        length = -(self._position + used + _HEAD.size) % _ALIGNMENT
        return _HEAD.pack(_PADDING, length) + b"Z" * length

    def close(self) -> None:
        """Writes the directory of the archive. The file stays open."""
        start = self._position
        for entry in self._entries:
            self._write(_directory_entry(entry))
        size, count = self._position - start, len(self._entries)
        if count >= _MANY or start >= _LARGE or size >= _LARGE:
            place = self._position
            versions = _VERSION_64, _VERSION_64
            numbers = count, count, size, start
            end = _END_64.pack(b"PK\x06\x06", _END_64.size - 12, *versions, 0, 0, *numbers)
            self._write(end + _LOCATOR_64.pack(b"PK\x06\x07", 0, place, 1))
        count, size, start = min(count, _MANY), min(size, _LARGE), min(start, _LARGE)
        self._write(_END.pack(b"PK\x05\x06", 0, 0, count, count, size, start, 0))


def _directory_entry(entry: _Written) -> bytes:
    size, start = min(entry.size, _LARGE), min(entry.start, _LARGE)
    wide = struct.pack("<2Q", entry.size, entry.size) if size == _LARGE else b""
    wide += struct.pack("<Q", entry.start) if start == _LARGE else b""
    extra = _HEAD.pack(_SIZES_64, len(wide)) + wide if wide else b""
    version = _VERSION_64 if wide else _PLAIN
    head = b"PK\x01\x02", version, version, entry.flags, 0, 0, _DATE
    lengths = len(entry.name), len(extra), 0, 0, 0
    fields = *head, entry.checksum, size, size, *lengths, 0, start
    return _CENTRAL.pack(*fields) + entry.name + extra
