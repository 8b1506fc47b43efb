# SPDX-License-Identifier: BSD-3-Clause
"""Files mapped into memory: tensors over them take no memory until they are written to."""

from __future__ import annotations

import mmap
import os
import stat
import sys
from typing import Any

from modtree.files.checkpoint.base import CheckpointError

__all__ = ["FileMap", "map_file", "open_regular"]

# Names that Python has had since 3.11 or 3.13; the numbers are those of Linux.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class FileMap(mmap.mmap):
    """A private map: what is written to it stays in this process, and the file as it is."""

    def let_go(self) -> None:
        """Gives back the memory of what was read. What was written to the map is lost."""
        if sys.platform == "linux":
            self.madvise(mmap.MADV_DONTNEED)


def open_regular(path: str) -> Any:
    """Opens a file for reading bytes; no pipe or device, from which reading may never return.

    Raises:
        OSError: It cannot be opened.
        CheckpointError: It is no regular file.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise CheckpointError("no regular file", path)
    return open(path, "rb")


def map_file(file: Any) -> FileMap:
    """Maps an open file that is not empty. The map outlives the file object and the file's name."""
    if hasattr(mmap, "MAP_PRIVATE"):
        # Without a reservation, since a map of a file larger than memory would be refused where it
        # may be written to.
        return FileMap(
            file.fileno(),
            0,
            flags=mmap.MAP_PRIVATE | _NO_RESERVE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
    return FileMap(file.fileno(), 0, access=mmap.ACCESS_COPY)
