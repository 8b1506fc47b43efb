# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint inside a zip or tar archive, as `.nemo`, `.keras` and others are, read in place."""

from __future__ import annotations

import collections
import itertools
import os
import struct
import tarfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.sources.source import Source, StoreSource
from modtree.files.sources.stores import RemoteError, Store, copied

_FEW = 12  # names in a message
_MOST = 1_000_000  # entries
_DAMAGES = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    ValueError,
    LookupError,
    OverflowError,
    struct.error,
    OSError,
    RuntimeError,  # of what is encrypted, or packed in a way that is not known
)


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        size: Its bytes.
        begin: Where in the archive it begins, unless it is compressed.
        name: What the archive calls it.
    """

    size: int
    begin: int | None
    name: str


class _Slice:
    """Some of the bytes of an open file."""

    def __init__(self, file: Any, begin: int, size: int) -> None:
        self.size = size
        self._file, self._begin = file, begin
        self._lock = threading.Lock()
        weakref.finalize(self, file.close)

    def read_into(self, at: int, place: memoryview) -> int:
        with self._lock:
            self._file.seek(self._begin + at)
            found = self._file.read(min(len(place), self.size - at))
        place[: len(found)] = found
        return len(found)


class InsideSource(StoreSource):
    """A file in an archive.

    Args:
        archive: The archive.
        members: What is in it.
        member: The name of this one.
    """

    def __init__(self, archive: Source, members: dict[str, Member], member: str) -> None:
        self.name = f"{archive.name}:{member}"
        self.large_header = archive.large_header
        self._archive, self._members, self._member = archive, members, member

    def _found(self) -> Store:
        member = self._members[self._member]
        if member.begin is not None:
            return _Slice(self._archive.open(), member.begin, member.size)
        return self._read(lambda read: copied(read, self.name))

    def damages(self) -> Iterator[CheckpointError]:
        """Reads the file, and compares its checksum where the archive has one."""
        try:
            self._read(lambda read: collections.deque(iter(lambda: read(1 << 20), b""), 0))
        except CheckpointError as error:
            yield error

    def _read(self, use: Callable[[Callable[[int], bytes]], Any]) -> Any:
        name = self._members[self._member].name
        try:
            with self._archive.open() as file, _opened(file) as archive:
                is_zip = isinstance(archive, zipfile.ZipFile)
                with archive.open(name) if is_zip else archive.extractfile(name) as opened:
                    return use(opened.read)
        except RemoteError:
            raise
        except _DAMAGES as error:
            text = f"{type(error).__name__}: {shortened(str(error))}"
            raise CheckpointError(f"the archive is damaged: {text}", self.name) from None

    def beside(self, name: str) -> Source:
        folder = os.path.dirname(self._member)
        other = f"{folder}/{name}" if folder else name
        if other not in self._members:
            raise CheckpointError(f"the archive has no {shortened(other)}", self.name)
        return InsideSource(self._archive, self._members, other)


def members_of(source: Source, head: bytes) -> dict[str, Member]:
    """The files in an archive by their names; none of what is no archive."""
    if not head.startswith((b"PK\x03\x04", b"\x1f\x8b")) and head[257:262] != b"ustar":
        return {}
    try:
        with source.open() as file, _opened(file) as archive:
            is_zip = isinstance(archive, zipfile.ZipFile)
            return dict(_in_zip(file, archive) if is_zip else _in_tar(archive, head))
    except RemoteError:
        raise
    except _DAMAGES:
        return {}  # whose reader says what is wrong


def _opened(file: Any) -> Any:
    head = file.read(2)
    file.seek(0)
    if head == b"PK":
        return zipfile.ZipFile(file)
    return tarfile.open(fileobj=file, mode="r:gz" if head == b"\x1f\x8b" else "r:")


def _in_zip(file: Any, archive: Any) -> Iterator[tuple[str, Member]]:
    for entry in archive.infolist()[:_MOST]:
        if entry.filename and not entry.filename.endswith("/"):
            is_stored = entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & 1
            begin = _begin_in_zip(file, entry) if is_stored else None
            yield entry.filename, Member(entry.file_size, begin, entry.filename)


def _begin_in_zip(file: Any, entry: zipfile.ZipInfo) -> int:
    file.seek(entry.header_offset + 26)
    lengths = file.read(4)
    name, extra = int.from_bytes(lengths[:2], "little"), int.from_bytes(lengths[2:], "little")
    begin = entry.header_offset + 30 + name + extra
    if begin + entry.file_size > file.seek(0, os.SEEK_END):
        raise zipfile.BadZipFile("an entry that ends behind the file")
    return begin


def _in_tar(archive: Any, head: bytes) -> Iterator[tuple[str, Member]]:
    is_plain = not head.startswith(b"\x1f\x8b")
    for entry in itertools.islice(archive, _MOST):
        if entry.isreg():
            begin = entry.offset_data if is_plain and not entry.sparse else None
            yield entry.name.removeprefix("./"), Member(entry.size, begin, entry.name)


def chosen(
    members: dict[str, Member],
    inside: str | None,
    path: str,
    may_be: tuple[str, ...],
    usual: Callable[[str], bool],
) -> tuple[str | None, list[str]]:
    """The name of the checkpoint in an archive, None where there is none, and the other ones.

    Args:
        members: What is in the archive.
        inside: The name that the caller gives, or the end of it.
        path: Of the archive, for errors.
        may_be: How the names of checkpoints end.
        usual: Whether a name is that of a model, which counts before others.

    Raises:
        CheckpointError: There are several, or there is none of this name.
    """
    names = [name for name in members if name.endswith(may_be)]
    names = [name for name in names if "sample_inputs" not in name]
    fits = names
    if inside is not None:
        fits = [n for n in members if n == inside] or [
            n for n in members if f"/{n}".endswith(f"/{inside}")
        ]
    elif len(names) > 1:
        fits = [name for name in names if usual(os.path.basename(name))] or names
    if len(fits) == 1:
        return fits[0], [name for name in names if name != fits[0]]
    if not fits and inside is None:
        return None, []
    listed = ", ".join(shortened(name)[1:-1] for name in (names or list(members))[:_FEW])
    what = f"no checkpoint {inside!r:.100}" if not fits else "several checkpoints"
    error = CheckpointError(
        f"the archive holds {what}; there is {listed}: name one with inside= or --inside", path
    )
    raise not_damaged(error)
