# SPDX-License-Identifier: BSD-3-Clause
"""The worker processes of a loader: what they do, and how an iterator asks them.

Each worker has a pipe. It answers what it is asked in that order, so that the iterator only reads
from the worker whose turn it is. There are no locks between processes: a worker may be killed at
any moment, and the others go on or are ended.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import random
import signal
import socket
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import numpy as np

from modtree.numpy.tensor.random import manual_seed
from modtree.numpy.tensor.settings import set_num_threads
from modtree.utils.data._fetch import Reading

#: Seconds after which a worker looks whether its parent is alive, and the parent at the worker.
_INTERVAL = 5.0
#: Seconds that a worker has to end what it does, once nobody waits for it.
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What :func:`get_worker_info` tells in a worker.

    Attributes:
        id: its number, from 0 on.
        num_workers: how many there are.
        seed: what its random numbers started from; another in each worker.
        dataset: its copy of the dataset, from which it reads.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a :class:`DataLoader` what it is; None elsewhere."""
    return _worker_info


def _work(info: WorkerInfo, reading: Reading, init_fn: Any, connection: Connection) -> None:
    """The life of a worker. Threads read and send, so that neither side ever waits for the other
    to read, and batches are made ahead.
    """
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, tasks, os.getppid()), daemon=True).start()
    threading.Thread(target=_send, args=(connection, answers), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):  # the parent tells the user
        failure: Exception | None = None
        try:
            _prepare(info)
            if init_fn is not None:
                init_fn(info.id)
        except Exception as error:
            failure = error
        _answer_all(reading, failure, tasks, answers)


def _read(connection: Connection, tasks: Any, parent: int) -> None:
    with contextlib.suppress(EOFError, OSError):  # the parent wants no more
        while True:
            while not connection.poll(_INTERVAL):
                if os.getppid() != parent:
                    os._exit(1)
            tasks.put(connection.recv())
    tasks.put(None)


def _send(connection: Connection, answers: Any) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.send_bytes(answers.get())


def _prepare(info: WorkerInfo) -> None:
    global _worker_info
    _worker_info = info
    set_num_threads(1)  # workers share the machine
    random.seed(info.seed)
    manual_seed(info.seed)
    base_seed = info.seed - info.id
    words = (info.id, base_seed & 0xFFFFFFFF, base_seed >> 32)
    np.random.seed(np.random.SeedSequence(words).generate_state(4))


def _answer_all(reading: Reading, failure: Exception | None, tasks: Any, answers: Any) -> None:
    read: Any = None
    known = over = -1  # the round for which it reads, and the one whose stream has ended
    while (task := tasks.get()) is not None:
        number, key = task
        if number == over:
            continue
        try:
            if failure is not None:
                raise failure
            if known != number:
                read, known = reading.begin(), number
            kind, body = "batch", pickle.dumps(read(pickle.loads(key)), 5)
        except Exception as error:
            if isinstance(error, StopIteration) and reading.streams:
                kind, body, over = "end", b"", number
            else:
                kind, body = "failure", _told(error)
        answers.put(pickle.dumps((number, kind)))
        answers.put(body)


def _told(error: BaseException) -> bytes:
    """The class of an exception, or its first base that can be sent, and its story."""
    where = f"in DataLoader worker process {_worker_info and _worker_info.id}"
    story = "".join(traceback.format_exception(error))
    text = f"Caught {type(error).__name__} {where}.\nOriginal {story}"
    for base in type(error).__mro__:
        with contextlib.suppress(Exception):
            return pickle.dumps((pickle.dumps(base), text))
    raise AssertionError("object can be pickled")


class _Text(str):
    """Text that KeyError, which shows the repr of its argument, shows as it is."""

    def __repr__(self) -> str:
        return str(self)


def failure_of(body: bytes) -> Exception:
    """An exception of the class that a worker told, if a text makes one; else a RuntimeError."""
    kind, text = pickle.loads(body)
    try:
        cls = pickle.loads(kind)
        return cls(_Text(text) if issubclass(cls, KeyError) else text)
    except Exception:
        return RuntimeError(text)


class Pool:
    """Worker processes and their pipes: what remains to be closed when an iterator goes."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._workers: list[tuple[Any, Connection]] = []

    def start(self, info: WorkerInfo, reading: Reading, init_fn: Any, context: Any) -> None:
        """One more worker."""
        mine, theirs = context.Pipe()
        work = info, reading, init_fn, theirs
        process = context.Process(target=_work, args=work, daemon=True)
        with theirs:
            process.start()
        self._workers.append((process, mine))

    @property
    def closed(self) -> bool:
        return not self._workers

    def ask(self, worker: int, number: int, key: Any) -> None:
        """Gives a worker a key of a round."""
        message = number, pickle.dumps(key, 5)
        try:
            self._workers[worker][1].send(message)
        except OSError:
            self._raise_dead(worker)
        except BaseException:
            self.close()  # half a message may be on its way
            raise

    def answer(self, worker: int, number: int, timeout: float) -> tuple[str, bytes]:
        """What a worker says next in a round: "batch", "failure" or "end", and what belongs to it.

        Args:
            worker: whom.
            number: the round; what earlier ones have left over is dropped.
            timeout: seconds to wait; 0 for any time.

        Raises:
            RuntimeError: the worker is gone, or did not answer in time.
        """
        end = time.monotonic() + timeout if timeout > 0 else float("inf")
        process, connection = self._workers[worker]
        try:
            while time.monotonic() < end:
                left = min(_INTERVAL, end - time.monotonic())
                wait([connection, process.sentinel], max(0.0, left))
                if connection.poll():  # what a worker sent before it died is still there
                    answered, kind = connection.recv()
                    body = connection.recv_bytes()
                    if answered == number:
                        return kind, body
                elif not process.is_alive():
                    self._raise_dead(worker)
        except (EOFError, OSError):
            self._raise_dead(worker)
        except BaseException:
            self.close()  # what comes next may be the rest of a message
            raise
        raise RuntimeError(f"DataLoader timed out after {timeout} seconds")

    def _raise_dead(self, worker: int) -> NoReturn:
        process, _ = self._workers[worker]
        process.join(_PATIENCE)  # its end of the pipe closes a little before it is gone
        pid, code = process.pid, process.exitcode
        self.close()
        story = f"exit code {code}"
        if code is not None and code < 0:
            story = f"killed by {signal.Signals(-code).name}"
        raise RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly: {story}")

    def close(self) -> None:
        """Ends all workers, and waits for them; not in a process that inherited the pool."""
        workers, self._workers = self._workers, []
        if os.getpid() != self._owner:
            return
        for _, connection in workers:
            _hang_up(connection)
        end = time.monotonic() + _PATIENCE
        for process, _ in workers:
            process.join(max(0.0, end - time.monotonic()))
            process.kill()  # nothing happens to one that has ended
            process.join()
            process.close()


def _hang_up(connection: Connection) -> None:
    """Closes a pipe so that the worker sees it, though workers forked later hold copies of it."""
    if hasattr(socket, "AF_UNIX"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)
    connection.close()
