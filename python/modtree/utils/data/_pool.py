# SPDX-License-Identifier: BSD-3-Clause
"""The worker processes of one iterator, seen from the process that asks them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from modtree.utils.data._transport import Channel
from modtree.utils.data._worker import INTERVAL, Job, work

__all__ = ["Pool"]

#: Seconds that a worker has to end what it does, once nobody waits for it.
_PATIENCE = 5.0


class Pool:
    """Worker processes and the ways to them. Knows nothing of who reads: it is what remains to be
    closed when an iterator goes.
    """

    def __init__(self, jobs: list[Job], context: Any) -> None:
        self._owner = os.getpid()
        self._processes: list[Any] = []
        self._channels: list[Channel] = []
        self._running: set[int] = set()
        context = multiprocessing.get_context() if context is None else context
        try:
            for job in jobs:
                self._start(job, context)
        except BaseException:
            self.close()
            raise

    def _start(self, job: Job, context: Any) -> None:
        mine, theirs = context.Pipe()
        channel = Channel(mine)
        channel.protect()
        self._channels.append(channel)
        process = context.Process(target=work, args=(job, theirs), daemon=True)
        try:
            process.start()
        finally:
            theirs.close()
        self._processes.append(process)
        self._running.add(len(self._processes) - 1)

    @property
    def closed(self) -> bool:
        return not self._channels

    def ask(self, worker: int, number: int, task: int, key: Any) -> None:
        """Gives a worker a task of a round."""
        message = number, task, pickle.dumps(key, 5)
        try:
            self._channels[worker].send(message)
        except OSError:
            self._raise_dead([worker])
        except BaseException:
            self.close()  # half a message may be on its way
            raise

    def answer(self, timeout: float) -> tuple[int, tuple[int, int, str], Callable[[], Any]]:
        """(worker, (round, task, kind), load) of the next answer to come.

        Args:
            timeout: seconds to wait; 0 for any time.

        Raises:
            RuntimeError: a worker is gone, or none answered in time.
        """
        end = time.monotonic() + timeout if timeout > 0 else None
        try:
            while True:
                left = INTERVAL if end is None else min(INTERVAL, end - time.monotonic())
                found = self._look(max(left, 0.0))
                if found is not None:
                    return found
                if end is not None and time.monotonic() >= end:
                    break
        except BaseException:
            # What comes next may be the rest of a message.
            self.close()
            raise
        raise RuntimeError(f"DataLoader timed out after {timeout} seconds")

    def _look(self, seconds: float) -> Any:
        sources: dict[Any, int] = {}
        for i in self._running:
            sources[self._channels[i].connection] = sources[self._processes[i].sentinel] = i
        ready = wait(list(sources), seconds)
        for source in ready:
            i = sources[source]
            # What a worker sent before it died is still there.
            if source is self._channels[i].connection or self._channels[i].connection.poll():
                try:
                    return (i, *self._channels[i].receive_value())
                except (EOFError, OSError):
                    self._raise_dead([i])
        dead = [i for i in sorted(self._running) if not self._processes[i].is_alive()]
        if dead:
            self._raise_dead(dead)
        return None

    def _raise_dead(self, workers: list[int]) -> None:
        stories = []
        for i in workers:
            process = self._processes[i]
            process.join(_PATIENCE)  # its end of the pipe closes a little before it is gone
            stories.append(_story(process.exitcode))
        pids = ", ".join(str(self._processes[i].pid) for i in workers)
        self.close()
        raise RuntimeError(
            f"DataLoader worker (pid(s) {pids}) exited unexpectedly: {', '.join(stories)}"
        )

    def stop(self, worker: int) -> None:
        """Lets a worker end that has nothing left to do."""
        self._running.discard(worker)
        self._channels[worker].close()

    def close(self) -> None:
        """Ends all workers and waits for them. Does nothing in a process that inherited the pool,
        or when called again.
        """
        channels, self._channels = self._channels, []
        processes, self._processes = self._processes, []
        ours = os.getpid() == self._owner
        for channel in channels:
            channel.close(ours=ours)
        if not ours:
            return
        _join(processes)
        for process in processes:
            if process.is_alive():
                process.terminate()
        _join(processes)
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


def _join(processes: list[Any]) -> None:
    end = time.monotonic() + _PATIENCE
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))


def _story(code: int | None) -> str:
    if code is None:
        return "it closed its pipe"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"
