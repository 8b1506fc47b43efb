# SPDX-License-Identifier: BSD-3-Clause
"""Files mapped into memory, and arrays over them, which take memory when they are written to."""

from __future__ import annotations

import gc
import mmap
import os
import stat
import sys
import weakref
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.dtypes import array_dtype, widened
from modtree.files.sources.stores import BytesStore, StoreFile

# Names that Python has had since 3.11 or 3.13; the numbers are those of Linux.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


#: Those that are in use. A file that is written in place may be one of them.
_IN_USE: weakref.WeakSet[FileMap] = weakref.WeakSet()


class FileMap(mmap.mmap):
    """A private map: what is written to it stays in this process, and the file as it is.

    Attributes:
        status: That of the file, which tells it from others.
    """

    status: os.stat_result

    def is_whole(self) -> bool:
        """False if the file is shorter than the map: reading what is missing ends the process."""
        return self.size() >= len(self)

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
    made = _made_map(file)
    made.status = os.fstat(file.fileno())
    _IN_USE.add(made)
    return made


def maps_in_use() -> list[FileMap]:
    """The maps of this process that are open."""
    return [found for found in list(_IN_USE) if not found.closed]


def is_in_use(file: Any) -> bool:
    """True if tensors of this process are in a map of an open file. Linux takes even the pages away
    that were written to when the file becomes shorter.
    """
    status = os.fstat(file.fileno())

    def is_mapped() -> bool:
        return any(os.path.samestat(found.status, status) for found in list(_IN_USE))

    if is_mapped():
        gc.collect()
    return is_mapped()


def _made_map(file: Any) -> FileMap:
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


class Window(StoreFile):
    """A part of a mapped file, to be read like a file.

    Args:
        memory: The bytes.
    """

    def __init__(self, memory: memoryview) -> None:
        super().__init__(BytesStore(memory))
        self.memory = memory


class MappedFiles:
    """The files of a folder, each mapped when a part of it is asked for."""

    def __init__(self) -> None:
        self._maps: dict[str, FileMap | None] = {}  # None for an empty file

    def window(self, path: str, offset: int, length: int) -> Window:
        """A part of a file.

        Raises:
            CheckpointError: The file does not have it.
        """
        if path not in self._maps:
            self._maps[path] = _mapped_whole(path)
        whole = self._maps[path]
        size = 0 if whole is None else len(whole)
        if offset < 0 or length < 0 or offset + length > size:
            raise CheckpointError(
                f"the file is truncated: bytes {offset} to {offset + length} are to be in it, and "
                f"it has {size}",
                path,
            )
        return Window(memoryview(b"" if whole is None else whole)[offset : offset + length])

    def let_go(self) -> None:
        """Gives back the memory of what was read."""
        for opened in self._maps.values():
            if opened is not None:
                opened.let_go()

    def close(self) -> None:
        self._maps = {}  # a map is closed when the last tensor of it dies


def _mapped_whole(path: str) -> FileMap | None:
    try:
        with open_regular(path) as file:
            return map_file(file) if os.fstat(file.fileno()).st_size else None
    except FileNotFoundError:
        raise CheckpointError("the file is not there", path) from None
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot be mapped: {error}", path) from None


# -- arrays ----------------------------------------------------------------------------------------


def mapped_array(
    memory: Any, at: int, name: str, shape: tuple[int, ...], path: str, key: str
) -> np.ndarray:
    """The values of a tensor that lie one after the other in a file.

    Args:
        memory: The map of the file.
        at: Where they begin.
        name: torch's name of their dtype.
        shape: Their shape.
        path: The file, for errors.
        key: The key of the tensor, for errors.

    Raises:
        CheckpointError: The file does not have them, a bool is neither 0 nor 1, or NumPy does not
            have the dtype.
    """
    is_widened = False
    try:
        dtype = array_dtype(name)
    except TypeError as error:
        if name != "bfloat16":
            raise CheckpointError(str(error), path, key) from None
        dtype, is_widened = np.dtype("<u2"), True
    if 0 in shape:
        return np.empty(shape, "float32" if is_widened else dtype.newbyteorder("="))
    try:
        array: np.ndarray = np.ndarray(shape, dtype, memory, at)
    except (TypeError, ValueError) as error:
        # Of a file that was cut off after its header was read.
        raise CheckpointError(f"its values are not there: {error}", path, key) from None
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise CheckpointError("a bool is neither 0 nor 1", path, key)
    if at % dtype.itemsize:  # native code computes on aligned memory
        array = array.copy()
    array = array if array.dtype.isnative else array.astype(dtype.newbyteorder("="))
    return widened(array) if is_widened else array
