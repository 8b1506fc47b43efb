# SPDX-License-Identifier: BSD-3-Clause
"""Zip archives whose entries lie in the file as they are: checked before anything in them is
believed, read entry by entry, or mapped.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from modtree.files.checkpoint.mapped import FileMap, Window, map_file
from modtree.files.checkpoint.other_files import not_damaged, what_an_archive_is, what_damaged_it
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.sources.errors import RemoteError

__all__ = ["Archive", "open_archive"]

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_PIECE = 1 << 18
_SAMPLE = 1 << 14
_LONGEST_CODE = 1 << 20
_MOST_CODE = 1 << 26
_DEFLATED = 8  # the method of zip; others may need much memory to unpack
#: Bits of an entry's flags: encrypted, a patch of another file, strongly encrypted.
_ENCRYPTED = 0x61


def _check_name(name: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or parts[0] == "" or parts[0].endswith(":") or "\0" in name:
        raise UnpicklingError(f"the archive has an entry named {name!r:.80}, which leads out of it")


def _is_code(name: str) -> bool:
    """Is it an entry with code of TorchScript? Those alone may be compressed."""
    return name.partition("/")[2].startswith("code/")


def _check_stored(entry: Any) -> None:
    if entry.compress_type or entry.compress_size != entry.file_size:
        if (other := what_an_archive_is([entry.filename])) is not None:
            raise not_damaged(UnpicklingError(f"the file was not written by torch.save(): {other}"))
        raise UnpicklingError(
            f"the entry {entry.filename!r:.80} of the archive is compressed; torch.save() writes "
            f"entries as they are"
        )


class Archive:
    """The entries of an archive, after its directory was checked: read one by one, they are not
    larger than the file.

    Args:
        archive: An open ``zipfile.ZipFile``.
        file: The file in which it lies.
    """

    def __init__(self, archive: Any, file: Any) -> None:
        self._zip = archive
        self._code_left = _MOST_CODE
        self._file = file
        self._lock = threading.Lock()
        self._map: Any = None
        self._unchecked: set[str] = set()  # whose checksums are compared before they are mapped
        self._entries: dict[str, Any] = {}
        self._ends: dict[str, int] = {}
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        for entry in entries:
            _check_name(entry.orig_filename)
            if entry.filename in self._entries:
                raise UnpicklingError(f"the archive has two entries named {entry.filename!r:.80}")
            self._entries[entry.filename] = entry
        self._check_places(entries, archive.start_dir)

    def map(self, file: Any) -> None:
        """Maps the file on the disk in which the archive lies: entries need not be read then."""
        self._map = file.memory if isinstance(file, Window) else map_file(file)

    @property
    def file_map(self) -> Any:
        """The map of the file, or None."""
        return self._map

    @property
    def is_mapped(self) -> bool:
        """True if entries lie in a map."""
        return self._map is not None

    def compare_checksums(self) -> None:
        """From now on an entry is mapped, and read in pieces, only if it has its checksum."""
        self._unchecked = set(self._entries)

    def check(self, name: str) -> None:
        """Compares the checksum of an entry.

        Raises:
            UnpicklingError: It is another one.
        """
        entry = self._entry(name)
        if entry.compress_type:
            self.code(name)
            return
        if self._map is None:
            for _ in self.pieces(name, 0, entry.file_size, _PIECE):
                pass
            return
        start = self._start(name, self._in_map)
        checksum = 0
        for at in range(start, start + entry.file_size, _PIECE):
            piece = memoryview(self._map)[at : min(at + _PIECE, start + entry.file_size)]
            checksum = zlib.crc32(piece, checksum)
        self._check_sum(entry, checksum)
        self._unchecked.discard(name)

    @staticmethod
    def _check_sum(entry: Any, checksum: int) -> None:
        if checksum != entry.CRC:
            raise UnpicklingError(
                f"the archive is damaged: BadZipFile: Bad CRC-32 for file {entry.filename!r:.80}"
            )

    def let_go(self) -> None:
        """Gives back the memory of what was read of the map, and of changes to it."""
        if isinstance(self._map, FileMap):
            self._map.let_go()

    def _check_places(self, entries: list[Any], end_of_all: int) -> None:
        ends = [entry.header_offset for entry in entries[1:]] + [end_of_all]
        for entry, end in zip(entries, ends, strict=True):
            name = entry.filename
            if not (_is_code(name) and entry.compress_type == _DEFLATED):
                _check_stored(entry)
            if entry.flag_bits & _ENCRYPTED:
                raise UnpicklingError(f"the entry {name!r:.80} of the archive is encrypted")
            if (
                entry.header_offset < 0
                or entry.header_offset + _LOCAL_HEADER.size + entry.compress_size > end
            ):
                raise UnpicklingError(f"the entry {name!r:.80} of the archive overlaps another one")
            self._ends[name] = end

    def names(self) -> list[str]:
        """The entries, in the order in which they lie in the file."""
        return list(self._entries)

    def size(self, name: str) -> int:
        """The bytes of an entry.

        Raises:
            UnpicklingError: There is none of this name.
        """
        return self._entry(name).file_size

    def _entry(self, name: str) -> Any:
        entry = self._entries.get(name)
        if entry is None:
            raise UnpicklingError(f"the archive has no entry {name!r:.80}")
        return entry

    def code(self, name: str) -> bytes:
        """An entry with code, of which no more than a MiB is unpacked, and of all together no more
        than 64; its checksum compared.
        """
        entry = self._entry(name)
        try:
            with self._zip.open(entry) as unpacked:
                data: bytes = unpacked.read(min(_LONGEST_CODE, self._code_left))
                self._code_left -= len(data)
                return data
        except (UnpicklingError, MemoryError, RemoteError):
            raise
        except Exception as error:
            raise _damaged(error) from error

    def read(self, name: str) -> memoryview:
        """An entry in memory of its own, its checksum compared."""
        entry = self._entry(name)
        _check_stored(entry)
        # Not a bytearray: that would be filled with zeros first.
        data: Any = np.empty(entry.file_size, np.uint8)
        whole, at, checksum = memoryview(data), 0, 0
        with self._lock:
            self._file.seek(self._start(name, self._bytes_at))
            # A piece at a time, so that the checksum finds it in the processor's cache.
            while at < len(whole):
                piece = whole[at : at + _PIECE]
                count = self._fill(piece)
                checksum = zlib.crc32(piece[:count], checksum)
                at += count
        self._check_sum(entry, checksum)
        return whole

    def pieces(self, name: str, at: int, count: int, size: int) -> Iterator[memoryview]:
        """Bytes of an entry that is not mapped, from ``at`` on, at most ``size`` at once. Each is
        valid until the next one is asked for. Of a whole entry the checksum is compared at its end,
        and before the first piece where only a part is wanted, if that was asked for.
        """
        entry = self._entry(name)
        is_whole = at == 0 and count == entry.file_size
        if not is_whole and name in self._unchecked:
            self.check(name)
        _check_stored(entry)
        with self._lock:
            start = self._start(name, self._bytes_at) + at
        buffer, checksum = memoryview(bytearray(min(size, count))), 0
        end = start + count
        while start < end:
            with self._lock:
                self._file.seek(start)
                piece = buffer[: self._fill(buffer[: end - start])]
            checksum = zlib.crc32(piece, checksum) if is_whole else 0
            start += len(piece)
            yield piece
        if is_whole:
            self._check_sum(entry, checksum)
            self._unchecked.discard(name)

    def _fill(self, piece: memoryview) -> int:
        """Reads from the file, at least a byte."""
        if hasattr(self._file, "readinto"):
            count = self._file.readinto(piece)
        else:
            found = self._file.read(len(piece))
            count = len(found)
            piece[:count] = found
        if not count:
            raise UnpicklingError("the file is truncated")
        return count

    def mapped(self, name: str) -> tuple[Any, int] | None:
        """The map of the file and where in it an entry begins; None where entries are read. What
        is written to the map stays in this process, and checksums are not compared unless that was
        asked for.
        """
        if self._map is None:
            return None
        if name in self._unchecked:
            self.check(name)
        return self._map, self._start(name, self._in_map)

    def _in_map(self, at: int, count: int) -> bytes:
        return bytes(self._map[at : at + count])

    def _bytes_at(self, at: int, count: int) -> bytes:
        self._file.seek(at)
        return self._file.read(count)

    def _start(self, name: str, bytes_at: Callable[[int, int], bytes]) -> int:
        """Where the bytes of an entry begin, behind the header that stands in front of them."""
        entry = self._entry(name)
        at, own_name = entry.header_offset, entry.orig_filename.encode("cp437", "replace")
        header = bytes_at(at, _LOCAL_HEADER.size)
        fields = _LOCAL_HEADER.unpack(header) if len(header) == _LOCAL_HEADER.size else (b"",)
        if fields[0] != b"PK\x03\x04":
            other = what_damaged_it(bytes_at(0, _SAMPLE))
            what = f"there is no entry {name!r:.80} at {at}"
            raise UnpicklingError(f"the archive is damaged: {other or what}")
        *_, name_length, extra_length = fields
        start = at + _LOCAL_HEADER.size + name_length + extra_length
        found = bytes_at(at + _LOCAL_HEADER.size, name_length)
        if found not in (own_name, entry.orig_filename.encode()):
            raise UnpicklingError(
                f"the archive is damaged: the entry {name!r:.80} has the name {found[:80]!r} where "
                f"it lies"
            )
        if start + entry.compress_size > self._ends[name]:
            raise UnpicklingError(f"the entry {name!r:.80} of the archive overlaps another one")
        return start


def open_archive(file: Any, mapped: bool = False) -> Archive:
    """The archive in a file that is open for reading bytes.

    Args:
        file: The file. It stays open as long as entries are read.
        mapped: Whether to map it, which takes a file on a disk.

    Raises:
        UnpicklingError: Its directory is damaged, or has what no archive of tensors needs.
    """
    import zipfile  # takes a while, and few programs need it

    try:
        archive = Archive(zipfile.ZipFile(file), file)
    except (MemoryError, RemoteError):
        raise
    except Exception as error:
        is_remote = isinstance(error.__context__, RemoteError)
        if not is_remote and (other := _what_damaged(file)) is not None:
            raise UnpicklingError(f"the archive is damaged: {other}") from error
        if isinstance(error, UnpicklingError):
            raise
        raise _damaged(error) from error
    if mapped:
        archive.map(file)
    return archive


def _what_damaged(file: Any) -> str | None:
    file.seek(0)
    return what_damaged_it(file.read(_SAMPLE))


def _damaged(error: Exception) -> Exception:
    if isinstance(error.__context__, RemoteError):  # which zipfile takes for damage
        return error.__context__
    text = f"the archive is damaged: {type(error).__name__}: {error}"
    if str(error) == "File is not a zip file":
        text += (
            "; it ends before its directory, as half of a download or of a save does: get it again"
        )
    return UnpicklingError(text)
