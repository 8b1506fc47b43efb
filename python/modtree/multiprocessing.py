# SPDX-License-Identifier: BSD-3-Clause
"""Python's multiprocessing, and ``spawn``, which runs a function in several processes."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing.connection import wait
from typing import Any

from modtree import _imports

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):  # noqa: N818
    """A process of :func:`spawn` has failed.

    Args:
        msg: What happened.
        error_index: Which process.
        pid: Its number in the system.
    """

    def __init__(self, msg: str, error_index: int, pid: int | None) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """By an exception, whose traceback is the message."""


class ProcessExitedException(ProcessException):
    """By a signal or an exit code."""


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that :func:`spawn` has started.

    Args:
        processes: They themselves.
        errors: For each the end of a pipe, where the traceback of its exception comes.
    """

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes = processes
        self._errors = errors

    def pids(self) -> list[int]:
        """Their numbers in the system."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for one of them to end: True when all have. When one has failed, the others are
        stopped and its error is raised.

        Args:
            timeout: In seconds; None waits as long as it takes.
            grace_period: How long the others have to stop before they are killed.
        """
        codes = [p.exitcode for p in self.processes]
        if None in codes and not any(codes):
            alive = {p.sentinel: p for p in self.processes if p.exitcode is None}
            for sentinel in wait(list(alive), timeout):
                alive[sentinel].join()  # a sentinel is ready before the exit code is there
        for index, process in enumerate(self.processes):
            if process.exitcode not in (None, 0):
                self._stop(grace_period)
                self._raise(index, process)
        return all(process.exitcode == 0 for process in self.processes)

    def _stop(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(30 if grace_period is None else grace_period)
            if process.is_alive():
                process.kill()
                process.join()

    def _raise(self, index: int, process: Any) -> None:
        code = process.exitcode
        errors = self._errors[index]
        if code == 1 and errors.poll():
            text = f"\n\n-- Process {index} terminated with the following error:\n{errors.recv()}"
            raise ProcessRaisedException(text, index, process.pid)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise ProcessExitedException(f"process {index} terminated with {how}", index, process.pid)


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs ``fn(i, *args)`` in a process for each number ``i`` below ``nprocs``.

    Args:
        fn: A function that pickle finds by its name.
        args: What follows the number.
        nprocs: How many processes.
        join: Wait for them; without it, what is returned can be waited for.
        daemon: They end with this process.
        start_method: As Python's ``get_context`` takes it.

    Raises:
        ProcessRaisedException: One of them raised an exception; the message has its traceback.
        ProcessExitedException: One of them was stopped.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        errors.append(ours)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """:func:`start_processes` under the name that programs use.

    Args:
        fn: A function that pickle finds by its name.
        args: What follows the number.
        nprocs: How many processes.
        join: Wait for them.
        daemon: They end with this process.
        start_method: As Python's ``get_context`` takes it.
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """How tensors go to other processes: their memory is copied."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """The only one."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Nothing: there is one."""


_imports.answer_for_missing(__name__)
