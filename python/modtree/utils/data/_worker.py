# SPDX-License-Identifier: BSD-3-Clause
"""What a worker process of the loader does."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from modtree._tensor.random import manual_seed
from modtree._tensor.settings import set_num_threads
from modtree.utils.data._fetch import Reading
from modtree.utils.data._transport import Channel, close_inherited

__all__ = ["Failure", "Job", "WorkerInfo", "get_worker_info", "work"]

#: Seconds after which a worker looks whether its parent is alive.
INTERVAL = 5.0


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


@dataclass(frozen=True)
class Job:
    """What a worker gets when it starts."""

    id: int
    num_workers: int
    base_seed: int
    reading: Reading
    init_fn: Callable[[int], None] | None


class _Text(str):
    """Text that KeyError, which shows the repr of its argument, shows as it is."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Failure:
    """An exception of a worker, as far as it can be told elsewhere."""

    cls: bytes
    text: str

    @classmethod
    def of(cls, error: BaseException, worker: int) -> Failure:
        story = "".join(traceback.format_exception(error))
        name = type(error).__name__
        return cls(
            _class_to_send(type(error)),
            f"Caught {name} in DataLoader worker process {worker}.\nOriginal {story}",
        )

    def exception(self) -> Exception:
        """One of the same class where it can be made of a text; else a RuntimeError."""
        try:
            kind = pickle.loads(self.cls)
            return kind(_Text(self.text) if issubclass(kind, KeyError) else self.text)
        except Exception:
            return RuntimeError(self.text)


def _class_to_send(cls: type) -> bytes:
    """The class pickled, or its first base for which that is possible."""
    for base in cls.__mro__:
        try:
            return pickle.dumps(base)
        except Exception:
            continue
    return pickle.dumps(RuntimeError)


class _Inbox:
    """Messages, read by a thread: the parent never waits for a worker that waits for the parent."""

    def __init__(self, channel: Channel) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.round = 0  # tasks of earlier rounds are not wanted any more
        self._channel = channel
        self._parents = os.getppid()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                while not self._channel.connection.poll(INTERVAL):
                    if self._orphaned():
                        return
                message = self._channel.receive()
                self.round = message[0]
                self.messages.put(message)
        except (EOFError, OSError):
            pass  # the parent wants no more, or is gone
        finally:
            self.messages.put(None)

    def _orphaned(self) -> bool:
        # Under forkserver the first is the server, which outlives nobody for long.
        parent = multiprocessing.parent_process()
        return os.getppid() != self._parents or (parent is not None and not parent.is_alive())


def work(job: Job, connection: Connection) -> None:
    """The life of a worker."""
    close_inherited()
    channel = Channel(connection)
    try:
        _serve(job, channel)
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        pass  # the parent tells the user, or wants no more
    finally:
        channel.close()


def _serve(job: Job, channel: Channel) -> None:
    inbox = _Inbox(channel)
    failure = _prepare(job)
    read: Any = None
    known = over = -1  # the round for which it reads, and the one whose stream has ended
    while (message := inbox.messages.get()) is not None:
        number, task, key = message
        if number != inbox.round or number == over:
            continue
        if failure is not None:
            channel.send_value((number, task, "failure"), failure)
            continue
        kind, value = "failure", None
        try:
            if known != number:
                read, known = job.reading.begin(), number
            kind, value = "batch", read(pickle.loads(key))
        except Exception as error:
            if isinstance(error, StopIteration) and job.reading.streams:
                kind, over = "end", number
            else:
                value = Failure.of(error, job.id)
        _answer(job, channel, (number, task, kind), value)
        del value, message, key  # not to be kept while the next one is made


def _answer(job: Job, channel: Channel, head: tuple[int, int, str], value: Any) -> None:
    try:
        channel.send_value(head, value)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # it cannot be pickled, or there is no memory: nothing was sent
        channel.send_value((*head[:2], "failure"), Failure.of(error, job.id))


def _prepare(job: Job) -> Failure | None:
    """Seeds, and the user's function."""
    global _worker_info
    set_num_threads(1)  # workers share the machine
    seed = job.base_seed + job.id
    random.seed(seed)
    manual_seed(seed)
    words = (job.id, job.base_seed & 0xFFFFFFFF, job.base_seed >> 32)
    np.random.seed(np.random.SeedSequence(words).generate_state(4))
    _worker_info = WorkerInfo(job.id, job.num_workers, seed, job.reading.dataset)
    try:
        if job.init_fn is not None:
            job.init_fn(job.id)
    except Exception as error:
        return Failure.of(error, job.id)
    return None
