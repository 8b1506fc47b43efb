# SPDX-License-Identifier: BSD-3-Clause
"""Zip archives whose entries lie in the file as they are: checked before anything in them is
believed, read entry by entry or mapped, and written so that tensors can be made over a map.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from modtree.files.checkpoint.mapped import FileMap, Window, map_file
from modtree.files.checkpoint.other_files import not_damaged, what_an_archive_is, what_damaged_it
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.sources.stores import RemoteError

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

    Attributes:
        file_map: The map of the file, or None.
    """

    def __init__(self, archive: Any, file: Any) -> None:
        self._zip = archive
        self._code_left = _MOST_CODE
        self._file = file
        self._lock = threading.Lock()
        self.file_map: Any = None
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
        self.file_map = file.memory if isinstance(file, Window) else map_file(file)

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
        if self.file_map is None:
            for _ in self.pieces(name, 0, entry.file_size, _PIECE):
                pass
            return
        start = self._start(name, self._in_map)
        checksum = 0
        for at in range(start, start + entry.file_size, _PIECE):
            piece = memoryview(self.file_map)[at : min(at + _PIECE, start + entry.file_size)]
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
        if isinstance(self.file_map, FileMap):
            self.file_map.let_go()

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
        if self.file_map is None:
            return None
        if name in self._unchecked:
            self.check(name)
        return self.file_map, self._start(name, self._in_map)

    def _in_map(self, at: int, count: int) -> bytes:
        return bytes(self.file_map[at : at + count])

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


# -- writing ---------------------------------------------------------------------------------------

_ALIGNMENT = 64
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
_LARGEST_WRITE = 1 << 30


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
        for start in range(0, len(view), _LARGEST_WRITE):
            self._file.write(view[start : start + _LARGEST_WRITE])
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
        extra += self._padding(_LOCAL_HEADER.size + len(encoded) + len(extra))
        shown = _LARGE if large else size
        version = _VERSION_64 if large else _PLAIN
        sizes = entry.checksum, shown, shown, len(encoded), len(extra)
        head = _LOCAL_HEADER.pack(b"PK\x03\x04", version, flags, 0, 0, _DATE, *sizes)
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
