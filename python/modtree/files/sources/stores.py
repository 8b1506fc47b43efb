# SPDX-License-Identifier: BSD-3-Clause
"""Bytes that can be read from any place, as files.

A store has a ``size`` and gives its bytes by their place, so that several readers may have one at
once; a :class:`StoreFile` adds the position of one reader. What goes wrong on the way to bytes,
rather than in them, has errors of its own.
"""

from __future__ import annotations

import collections
import errno
import io
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from modtree.files.checkpoint.base import CheckpointError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")
_PRIVATE = re.compile(r"(?<=://)[^/?#@]*@|(?<=\?).*", re.DOTALL)


class RemoteError(OSError):
    """Bytes that could not be had. A reader passes it on: it says nothing about the file."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(errno.EIO, reason, shown_name(name))

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str, str]]:
        return type(self), (str(self.strerror), str(self.filename))


def is_address(text: str) -> bool:
    """True for an address such as ``https://...``, and for the chains of fsspec."""
    return _ADDRESS.match(text) is not None


def is_http(address: str) -> bool:
    """True for the address of a web server."""
    return address[:8].lower().startswith(("http://", "https://"))


def shown_name(name: str) -> str:
    """A path or address as messages have it: without passwords and signatures."""
    if not is_address(name):
        return name
    return _PRIVATE.sub(lambda found: "" if found[0].endswith("@") else "...", name)


def missing(name: str) -> FileNotFoundError:
    """The error for an address with nothing behind it."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown_name(name))


def refused_access(name: str, reason: str) -> PermissionError:
    """The error for an address that wants to know who asks."""
    return PermissionError(errno.EACCES, reason, shown_name(name))


# -- stores ----------------------------------------------------------------------------------------

_CHUNK = 1 << 20
#: What is fetched at once where little is asked for: at first, and at most, as long as each read
#: begins where the one before ended.
_FIRST_WINDOW = 1 << 16
_LARGEST_WINDOW = 1 << 23
#: From so many bytes on they are fetched straight to where they are wanted.
_DIRECT = 1 << 20
#: Windows that are kept: the readers of archives go between beginning and end.
_MOST_WINDOWS = 4
#: What a copy leaves free on the disk.
_LEAST_FREE = 1 << 28


class Store(Protocol):
    """Bytes by their place."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def read_into(self, at: int, place: memoryview) -> int:
        """Reads bytes from ``at`` on, at least one where there are any, and returns how many."""
        ...


class StoreFile(io.RawIOBase):
    """A store as a file that is open for reading."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        number = getattr(self._store, "fileno", None)
        if number is None:
            raise io.UnsupportedOperation("fileno")
        found: int = number()
        return found

    def tell(self) -> int:
        return self._at

    def seek(self, at: int, whence: int = 0) -> int:
        at += (0, self._at, self._store.size)[whence]
        if at < 0:
            raise OSError(errno.EINVAL, f"negative position {at}")  # as of files, for zipfile
        self._at = at
        return at

    def readinto(self, place: Any) -> int:
        left = self._store.size - self._at
        if left <= 0:
            return 0
        with memoryview(place) as given, given.cast("B") as view:
            count = self._store.read_into(self._at, view[: min(left, len(view))])
        self._at += count
        return count


def open_store(store: Store) -> io.BufferedReader:
    """A file over a store."""
    return io.BufferedReader(StoreFile(store), _FIRST_WINDOW)


class FileBytes:
    """The bytes of a file that is not mapped, read by the slice.

    Args:
        file: Open for reading bytes; it can seek.
        name: What errors call it.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name
        self._lock = threading.Lock()
        self._size = int(file.seek(0, 2))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        begin, end, _ = place.indices(self._size)
        with self._lock:
            self._file.seek(begin)
            found: bytes = self._file.read(end - begin)
        if len(found) != end - begin:
            raise CheckpointError("the file is truncated", self._name)
        return found

    def let_go(self) -> None:
        """Nothing is kept."""


class BytesStore:
    """Bytes in memory, which are not copied."""

    def __init__(self, data: Any) -> None:
        self._data = memoryview(data).cast("B")
        self.size = len(self._data)

    def read_into(self, at: int, place: memoryview) -> int:
        found = self._data[at : at + len(place)]
        place[: len(found)] = found
        return len(found)


class FileStore:
    """A file object that can seek. It stays the caller's, and open.

    Args:
        file: Open for reading bytes.
        name: What errors call it.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name
        self._lock = threading.Lock()
        file.seek(0, 2)
        self.size = int(file.tell())

    def read_into(self, at: int, place: memoryview) -> int:
        with self._lock:
            self._file.seek(at)
            found = self._file.read(min(len(place), _LARGEST_WINDOW))
        if not isinstance(found, bytes) or len(found) > len(place):
            raise TypeError(
                f"{self._name}: expected a file that is open for reading bytes, but read() gave "
                f"{len(found) if isinstance(found, bytes) else type(found).__name__}"
            )
        place[: len(found)] = found
        return len(found)


class _TemporaryStore:
    """A file on this disk, which can be mapped, and is gone with its last reader.

    Args:
        descriptor: Of the file, which has no name any more. It is closed.
        size: The bytes in it.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def read_into(self, at: int, place: memoryview) -> int:
        with self._lock:
            os.lseek(self._descriptor, at, os.SEEK_SET)
            found = os.read(self._descriptor, min(len(place), _LARGEST_WINDOW))
        place[: len(found)] = found
        return len(found)


def copied(read: Callable[[int], bytes], name: str) -> Store:
    """Copies a stream to a temporary file, which is gone with its last reader.

    Args:
        read: Gives the next bytes, at most so many; none at the end.
        name: What errors call it.

    Raises:
        RemoteError: It does not fit on the disk.
    """
    count = 0
    with tempfile.TemporaryFile() as file:
        while data := read(_CHUNK):
            if count % (_CHUNK << 5) < _CHUNK:
                free = shutil.disk_usage(tempfile.gettempdir()).free
                if free < _LEAST_FREE:
                    raise RemoteError(
                        f"the disk of {tempfile.gettempdir()} is full after {count:,} bytes of a "
                        f"temporary copy; the variable TMPDIR names another one",
                        name,
                    )
            file.write(data)
            count += len(data)
        file.flush()
        return _TemporaryStore(os.dup(file.fileno()), count)


class RangeStore:
    """Bytes that are fetched in ranges: few and short ones for who looks here and there, long ones
    for who reads on.

    Args:
        size: How many bytes there are.
        fetch: Fetches bytes from a place on until the memory that it gets is full.
        head: The first bytes, where they are there.
    """

    def __init__(
        self, size: int, fetch: Callable[[int, memoryview], None], head: bytes | bytearray = b""
    ) -> None:
        self.size = size
        self._fetch = fetch
        self._lock = threading.Lock()
        self._end = 0  # of the last fetch
        self._length = _FIRST_WINDOW
        self._windows: collections.deque[tuple[int, Any]] = collections.deque(maxlen=_MOST_WINDOWS)
        if head:
            self._windows.append((0, head))

    def read_into(self, at: int, place: memoryview) -> int:
        with self._lock:
            for begin, data in self._windows:
                if begin <= at < begin + len(data):
                    found = memoryview(data)[at - begin : at - begin + len(place)]
                    place[: len(found)] = found
                    return len(found)
            if len(place) >= _DIRECT:
                self._fetch(at, place)
                self._end = at + len(place)
                return len(place)
            self._enter_window(at, len(place))
            found = memoryview(self._windows[0][1])[: len(place)]
            place[:] = found
            return len(found)

    def _enter_window(self, at: int, least: int) -> None:
        is_next = at == self._end or any(at == begin + len(data) for begin, data in self._windows)
        self._length = min(self._length * 4, _LARGEST_WINDOW) if is_next else _FIRST_WINDOW
        data = bytearray(min(max(self._length, least), self.size - at))
        self._fetch(at, memoryview(data))
        if len(data) > _DIRECT:  # of those, one is enough
            self._windows.clear()
        self._windows.appendleft((at, data))
        self._end = at + len(data)
