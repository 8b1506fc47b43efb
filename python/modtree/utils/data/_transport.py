# SPDX-License-Identifier: BSD-3-Clause
"""Values on their way from a worker to the process that asked for them.

Large arrays do not go through the pipe. They are written into memory that has a file descriptor and
no name, and the descriptor is sent: whatever process dies at whatever moment, the kernel frees the
memory with the last descriptor, so that nothing can be left behind in /dev/shm. The receiver maps
the memory; nothing is copied there. Where the system has no such memory, everything goes through
the pipe.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import sys
import weakref
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

__all__ = ["Channel", "close_inherited"]

#: Bytes from which on a buffer does not go through the pipe.
_LARGE = 1 << 15

#: A mapping costs a file descriptor, of which a process has 1,024 by default, until Python 3.13.
_MOST_MAPPINGS = 4096 if sys.version_info >= (3, 13) else 256

_mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

# The ends of this process. A forked child has a copy of each: it closes them, or the other side
# would not see that this process is gone.
_ends: weakref.WeakSet[Any] = weakref.WeakSet()


class Channel:
    """One end of the way between a process and its worker.

    ``send`` and ``receive`` carry small messages, ``send_value`` and ``receive_value`` batches. One
    thread may send while another receives.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._socket: socket.socket | None = None
        if hasattr(socket, "AF_UNIX"):
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._sends_memory = hasattr(os, "memfd_create") and hasattr(socket, "send_fds")

    def protect(self) -> None:
        """Forked children will close their copies of this end."""
        _ends.add(self.connection)
        if self._socket is not None:
            _ends.add(self._socket)

    def send(self, message: Any) -> None:
        """Sends a small message; raises OSError when the other end is closed."""
        self.connection.send_bytes(pickle.dumps(message, 5))

    def receive(self) -> Any:
        """The next message; raises EOFError or OSError when the other end is closed."""
        return pickle.loads(self.connection.recv_bytes())

    def send_value(self, head: tuple[Any, ...], value: Any) -> None:
        """Sends a value with a head of small things; when it cannot be pickled, nothing is sent."""
        large: list[pickle.PickleBuffer] = []
        body: Any = pickle.dumps(value, 5, buffer_callback=self._chooser(large))
        parts = [buffer.raw() for buffer in large]
        as_memory = self._sends_memory and len(body) >= _LARGE
        if as_memory:
            parts.append(memoryview(body))
        sizes = [(part.nbytes, part.readonly) for part in parts]
        memory = _written(parts) if parts else -1
        try:
            self.send((head, sizes, None if as_memory else body))
            if parts:
                assert self._socket is not None
                socket.send_fds(self._socket, [b"m"], [memory])
        finally:
            if parts:
                os.close(memory)

    def _chooser(self, large: list[pickle.PickleBuffer]) -> Any:
        def stays_inside(buffer: pickle.PickleBuffer) -> bool:
            if not self._sends_memory or buffer.raw().nbytes < _LARGE:
                return True
            large.append(buffer)
            return False

        return stays_inside

    def receive_value(self) -> tuple[tuple[Any, ...], Any]:
        """(head, load): ``load()`` gives the value, or raises what its unpickling raises."""
        head, sizes, body = self.receive()
        buffers: list[Any] = []
        if sizes:
            assert self._socket is not None
            _, (memory,), _, _ = socket.recv_fds(self._socket, 1, 1)
            try:
                buffers = _read(memory, sizes)
            finally:
                os.close(memory)
            if body is None:
                body = buffers.pop()
        return head, lambda: pickle.loads(body, buffers=buffers)

    def close(self, *, ours: bool = True) -> None:
        """Closes this end. The other one sees it at once, even where children of this process hold
        copies; it does not where this is such a copy (``ours`` is false).
        """
        if self._socket is not None:
            try:
                if ours:
                    self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other end is closed already
            self._socket.close()
        self.connection.close()


def close_inherited() -> None:
    """In a forked child: closes the copies of the ends of its parent."""
    for end in list(_ends):
        end.close()


def _places(sizes: list[int]) -> list[int]:
    """Where each part begins: parts are mapped one by one, so that one of them does not keep the
    others alive, and mappings begin at pages.
    """
    grain = mmap.ALLOCATIONGRANULARITY
    places, end = [], 0
    for size in sizes:
        places.append(end)
        end += -(size // -grain) * grain
    return places


def _written(parts: list[memoryview]) -> int:
    """A descriptor of new memory that holds these parts."""
    memory = os.memfd_create("modtree-batch")
    try:
        for place, part in zip(_places([p.nbytes for p in parts]), parts, strict=True):
            done = 0
            while done < part.nbytes:  # at most 2 GB go at a time
                done += os.pwrite(memory, part[done:], place + done)
    except BaseException:
        os.close(memory)
        raise
    return memory


def _read(memory: int, sizes: list[tuple[int, bool]]) -> list[memoryview]:
    places = _places([size for size, _ in sizes])
    views = []
    for place, (size, readonly) in zip(places, sizes, strict=True):
        many = len(_mappings) >= _MOST_MAPPINGS
        view = _copied(memory, place, size) if many else _mapped(memory, place, size)
        views.append(view.toreadonly() if readonly else view)
    return views


def _mapped(memory: int, place: int, size: int) -> memoryview:
    if sys.version_info >= (3, 13):
        mapping = mmap.mmap(memory, size, offset=place, trackfd=False)
    else:
        mapping = mmap.mmap(memory, size, offset=place)
    _mappings.add(mapping)
    return memoryview(mapping)


def _copied(memory: int, place: int, size: int) -> memoryview:
    array: Any = np.empty(size, np.uint8)
    view = memoryview(array)
    done = 0
    while done < size:
        done += os.preadv(memory, [view[done:]], place + done)
    return view
