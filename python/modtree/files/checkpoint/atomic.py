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
import functools
import io
import os
import re
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import IO, Any

from modtree.files.checkpoint.mapped import is_in_use

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


#: Files that are open at once while they are brought to the disk.
_MOST_WAITING = 8
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)
#: Where there are no locks, a temporary file of this age counts as left behind.
_STALE_SECONDS = 24 * 3600.0


@contextlib.contextmanager
def atomic_file(path: Any, atomic: bool = True) -> Iterator[IO[bytes]]:
    """A file open for writing bytes, which takes the place of ``path`` when the block ends well.

    A link is followed, an existing file keeps its permissions, a new one gets those that open()
    would give it. What is no regular file, such as a pipe, is written to directly. With an error
    the old file stays, and the error names it.

    Args:
        path: The target.
        atomic: False writes into the file itself, for folders in which no file can be made or
            replaced.

    Raises:
        OSError: It cannot be written.
    """
    if not atomic:
        with _named(path), _file_in_place(path) as file:
            yield file
        return
    with AtomicFiles() as files, files.open(path) as file:
        yield file


@contextlib.contextmanager
def _file_in_place(path: Any) -> Iterator[IO[bytes]]:
    target = os.path.realpath(os.fsdecode(os.fspath(path)))
    if not _is_replaceable(target):
        with open(target, "wb") as file:
            yield file
        return
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    with BlockWriter(os.open(target, flags, 0o666)) as file:
        if is_in_use(file):
            raise ValueError(
                f"{target}: tensors of this process are in the map of the file, and atomic=False "
                f"writes into it: copy them first (clone(), copy.deepcopy()), and let go of these"
            )
        yield file  # type: ignore[misc]  # it has what IO[bytes] has
        file.flush()
        os.ftruncate(file.fileno(), file.tell())
        os.fsync(file.fileno())


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
                replacement.create()
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

    file: Any = None

    def __init__(self, path: Any, target: str) -> None:
        self.path = path
        self._target = target
        self._sync: _Sync | None = None
        self._thread: threading.Thread | None = None
        self._names: list[str] = []  # that the file may have: an interrupt comes at any moment
        self._remove = weakref.finalize(self, _unlink_all, self._names, os.getpid())

    def create(self) -> None:
        """Makes the file."""
        target = self._target
        folder, name = os.path.split(target)
        remove_leftovers(folder, _shortened(name).__eq__)
        descriptor = _create_beside(target, self._names)
        self.file = BlockWriter(descriptor)  # it has what IO[bytes] has
        if hasattr(os, "fchmod") and os.path.exists(target):
            os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode))

    def begin_sync(self) -> None:
        """Has the file brought to the disk in the background."""
        self.file.flush()
        self._sync = _Sync(self.file.fileno())
        thread = threading.Thread(target=self._sync.run)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._sync.run()
        else:
            self._thread = thread

    def finish(self) -> None:
        """Waits for the disk and renames the file."""
        if self._thread is not None:
            self._thread.join()
        if self._sync is not None and self._sync.error is not None:
            raise self._sync.error
        if fcntl is None:
            self._sync = None
            self.file.close()
        with _advised(self._target):
            os.replace(self._names[-1], self._target)
        self._remove.detach()
        self.file.close()  # and with it the lock, under which files that are open can be renamed

    def discard(self) -> None:
        """Removes the file."""
        try:
            if self.file is not None:
                with contextlib.suppress(OSError):
                    self.file.close()
        finally:
            self._remove()


class _Sync:
    """Brings a file to the disk. It has a descriptor of its own: after an interrupt nobody waits
    for the thread that it is in. That thread closes it, since a finalizer in the main thread would
    swallow an interrupt that comes in it.
    """

    def __init__(self, descriptor: int) -> None:
        self.error: OSError | None = None
        self._descriptor = os.dup(descriptor)

    def run(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self.error = error
        finally:
            os.close(self._descriptor)


def _unlink_all(names: list[str], process: int) -> None:
    for name in names if process == os.getpid() else ():  # a child that was forked may end first
        with contextlib.suppress(OSError):
            os.unlink(name)


#: What the system says of a folder in which no file may be made or replaced, and of a file that is
#: mounted by itself.
_OF_FOLDER = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


@contextlib.contextmanager
def _advised(target: str) -> Iterator[None]:
    """Where a folder refuses what its file would allow, the error says what to do."""
    try:
        yield
    except OSError as error:
        error.filename = target
        if error.filename2 is not None:
            del error.filename2  # which a message would show as None otherwise
        is_known = os.name != "nt" and error.errno in _OF_FOLDER  # Windows says so of files in use
        if is_known and os.path.isfile(target) and os.access(target, os.W_OK):
            error.strerror = (
                f"{error.strerror}: the file may be written and its folder not, so that a new file "
                f"cannot take its place; atomic=False (--in-place) writes into the file itself, "
                f"and damages it if that is interrupted"
            )
        raise


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


def _create_beside(target: str, names: list[str]) -> int:
    """A descriptor of a new file, whose name is added to ``names`` before it is there."""
    folder, name = os.path.split(target)
    while True:
        temporary = os.path.join(folder, f".{_shortened(name)}.{os.urandom(6).hex()}.tmp")
        names.append(temporary)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with _advised(target):
            descriptor = os.open(temporary, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
        # Another save may have met it before it was locked, and removed it.
        if not _lock(descriptor, wait=True) or os.fstat(descriptor).st_nlink:
            return descriptor
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


# -- writing in blocks -----------------------------------------------------------------------------

# Linux keeps what is written in memory in pieces that are as large as the writes were, as far as
# these begin at multiples of the size. A map of a file whose pieces have 2 MiB needs a single entry
# of the page table for each of them. Where they are odd ones, a first look at all pages takes
# several times as long.

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
