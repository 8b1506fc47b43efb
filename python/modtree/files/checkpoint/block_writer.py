# SPDX-License-Identifier: BSD-3-Clause
"""Writing large files so that they are on the disk soon, and are fast to read meanwhile.

Linux keeps what is written in memory in pieces that are as large as the writes were, as far as
these begin at multiples of the size. A map of a file whose pieces have 2 MiB needs a single entry
of the page table for each of them. Where they are odd ones, a first look at all pages takes several
times as long.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["BlockWriter"]

_BLOCK = 1 << 21
#: Bytes that are handed to the system at once, and after which it is asked to begin with bringing
#: them to the disk.
_STEP = 1 << 23


class BlockWriter(io.BufferedIOBase):
    """A file that is written from its beginning, in blocks; it has the system bring them to the
    disk while more is written, so that little is left to wait for at the end.

    Args:
        descriptor: An open descriptor of an empty file. It is closed with this one.
    """

    def __init__(self, descriptor: int) -> None:
        self._raw = io.FileIO(descriptor, "wb")
        self._pending = bytearray(_BLOCK)  # how a block begins, of which the rest is not there yet
        self._count = 0  # of bytes in it
        self._written = 0
        self._begun = 0

    def write(self, data: Any) -> int:
        with memoryview(data) as given, given.cast("B") as view:
            size = len(view)
            room = _BLOCK - self.tell() % _BLOCK
            whole = 0 if size < room else room + (size - room) // _BLOCK * _BLOCK
            start = 0
            if whole and self._count:
                start = self._keep(view[:room])
                self.flush()
            if start < whole:
                self._write_all(view[start:whole])
            self._keep(view[whole:])
        return size

    def _keep(self, part: memoryview) -> int:
        with part:
            end = self._count + len(part)
            self._pending[self._count : end] = part
            self._count = end
            return len(part)

    def flush(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")
        if self._count:
            with memoryview(self._pending) as block:
                self._write_all(block[: self._count])
            self._count = 0

    def _write_all(self, part: memoryview) -> None:
        with part:
            at = 0
            while at < len(part):
                with part[at : at + _STEP] as piece:
                    count = self._raw.write(piece) or 0
                at += count
                self._written += count
                if self._written - self._begun >= _STEP:
                    begun, self._begun = self._begun, self._written // _BLOCK * _BLOCK
                    _begin_writing(self._raw.fileno(), begun, self._begun - begun)

    def fileno(self) -> int:
        return self._raw.fileno()

    def tell(self) -> int:
        return self._written + self._count

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._raw.close()


def _begin_writing(descriptor: int, begin: int, size: int) -> None:
    """Asks the system to begin with bringing a part of a file to the disk, and does not wait."""
    ask = _sync_file_range()
    if ask is not None:
        ask(descriptor, begin, size, 2)  # SYNC_FILE_RANGE_WRITE; where it fails, fsync does it all


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The function of Linux, which Python has no name for; None elsewhere."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        function = ctypes.CDLL(None).sync_file_range
    except (ImportError, OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function
