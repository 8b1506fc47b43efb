# SPDX-License-Identifier: BSD-3-Clause
"""Files that are there whole or not at all.

What is written goes to a temporary file in the same folder, is brought to the disk, and takes the
place of the target by a rename: whoever opens the target at any moment, after a crash too, gets the
old file or the new one. The temporary name is ``.NAME.RANDOM.tmp``. Its writer holds a lock on it
for as long as it lives, so that the next save to the same target can tell what a killed process
left behind, and removes that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["atomic_file", "folder_lock", "remove_leftovers", "sync_folder"]

_BUFFER = 1 << 20
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)
#: Where there are no locks, a temporary file of this age counts as left behind.
_STALE_SECONDS = 24 * 3600.0


@contextlib.contextmanager
def atomic_file(path: Any) -> Iterator[IO[bytes]]:
    """A file open for writing bytes, which takes the place of ``path`` when the block ends well.

    A link is followed, an existing file keeps its permissions, a new one gets those that open()
    would give it. What is no regular file, such as a pipe, is written to directly. With an error
    the old file stays, and the error names it.

    Args:
        path: The target.

    Raises:
        OSError: It cannot be written.
    """
    target = os.path.realpath(os.fsdecode(os.fspath(path)))
    try:
        with _replacing(target) if _is_replaceable(target) else open(target, "wb") as file:
            yield file
    except OSError as error:
        if error.errno is not None and error.filename is None:  # of a write: it knows no name
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def _replacing(target: str) -> Iterator[IO[bytes]]:
    folder, name = os.path.split(target)
    remove_leftovers(folder, _shortened(name).__eq__)
    descriptor, temporary = _create_beside(target)
    try:
        with open(descriptor, "wb", _BUFFER) as file:
            if hasattr(os, "fchmod") and os.path.exists(target):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(descriptor)
            if fcntl is not None:  # under the lock, where open files can be renamed
                os.replace(temporary, target)
        if fcntl is None:
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(target))


def _is_replaceable(target: str) -> bool:
    """Is it a regular file, or nothing yet? An error where open() would refuse to write it."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    return stat.S_ISREG(mode)


def _shortened(name: str) -> str:
    """Leaves room for what is added: names of files may have 255 bytes."""
    return os.fsdecode(os.fsencode(name)[:200])


def _create_beside(target: str) -> tuple[int, str]:
    folder, name = os.path.split(target)
    while True:
        temporary = os.path.join(folder, f".{_shortened(name)}.{os.urandom(6).hex()}.tmp")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(temporary, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            error.filename = target
            raise
        # Another save may have met it before it was locked, and removed it.
        if not _lock(descriptor, wait=True) or os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """False where somebody else has the lock, or the file system knows none."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def remove_leftovers(folder: str, is_target: Callable[[str], bool]) -> None:
    """Removes what killed processes left behind while they wrote the files of some names."""
    with contextlib.suppress(OSError):
        for found in os.listdir(folder or "."):
            match = _TEMPORARY.fullmatch(found)
            if match and is_target(match[1]):
                _remove_abandoned(os.path.join(folder, found))


def _remove_abandoned(temporary: str) -> None:
    with contextlib.suppress(OSError):
        if fcntl is None:
            if time.time() - os.stat(temporary).st_mtime > _STALE_SECONDS:
                os.unlink(temporary)
            return
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK
        descriptor = os.open(temporary, flags)
        try:
            if _lock(descriptor, wait=False):
                os.unlink(temporary)
        finally:
            os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Brings the names in a folder to the disk, where the system can be asked to."""
    if os.name == "nt":
        return
    with contextlib.suppress(OSError):  # file systems that cannot; the rename itself is atomic
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def folder_lock(folder: str) -> Iterator[None]:
    """One process at a time in a folder. Without effect where folders cannot be locked."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)
