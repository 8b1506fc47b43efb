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
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from modtree.files.checkpoint.block_writer import BlockWriter

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["AtomicFiles", "atomic_file", "folder_lock", "remove_leftovers", "sync_folder"]

#: Files that are open at once while they are brought to the disk.
_MOST_WAITING = 8
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
    with AtomicFiles() as files, files.open(path) as file:
        yield file


class AtomicFiles:
    """Several files as those of :func:`atomic_file`, brought to the disk while the next ones are
    written. When the block ends well, all of them have their names; with an error, those that were
    renamed before it keep them.
    """

    def __init__(self) -> None:
        self._waiting: list[_Replacement] = []
        self._folders: set[str] = set()

    def __enter__(self) -> AtomicFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with contextlib.ExitStack() as unfinished:  # an interrupt of one stops none of the others
            for replacement in self._waiting:
                unfinished.callback(replacement.discard)
            if kind is not None:
                return
            while self._waiting:
                self._finish_oldest()
            unfinished.pop_all()
        for folder in self._folders:
            sync_folder(folder)

    @contextlib.contextmanager
    def open(self, path: Any) -> Iterator[IO[bytes]]:
        """A file open for writing bytes; see :func:`atomic_file`."""
        target = os.path.realpath(os.fsdecode(os.fspath(path)))
        with _named(path):
            if not _is_replaceable(target):
                with open(target, "wb") as file:
                    yield file
                return
            replacement = _Replacement(path, target)
            try:
                yield replacement.file
                replacement.begin_sync()
            except BaseException:
                replacement.discard()
                raise
        self._waiting.append(replacement)
        self._folders.add(os.path.dirname(target))
        if len(self._waiting) > _MOST_WAITING:
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        with _named(self._waiting[0].path):
            self._waiting[0].finish()
        del self._waiting[0]


@contextlib.contextmanager
def _named(path: Any) -> Iterator[None]:
    """Errors of the system name the file, which that of a write does not know."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


class _Replacement:
    """A temporary file that is to take the place of another one."""

    def __init__(self, path: Any, target: str) -> None:
        folder, name = os.path.split(target)
        remove_leftovers(folder, _shortened(name).__eq__)
        self.path = path
        self._target = target
        descriptor, self._temporary = _create_beside(target)
        self.file: Any = BlockWriter(descriptor)  # it has what IO[bytes] has
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        try:
            if hasattr(os, "fchmod") and os.path.exists(target):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode))
        except BaseException:
            self.discard()
            raise

    def begin_sync(self) -> None:
        """Has the file brought to the disk in the background."""
        self.file.flush()
        thread = threading.Thread(target=self._sync)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._sync()
        else:
            self._thread = thread

    def _sync(self) -> None:
        try:
            os.fsync(self.file.fileno())
        except OSError as error:
            self._error = error

    def finish(self) -> None:
        """Waits for the disk and renames the file."""
        self._wait()
        if self._error is not None:
            raise self._error
        if fcntl is None:
            self.file.close()
        os.replace(self._temporary, self._target)
        self.file.close()  # and with it the lock, under which files that are open can be renamed

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def discard(self) -> None:
        """Removes the file."""
        self._wait()  # it uses the descriptor
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


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
