# SPDX-License-Identifier: BSD-3-Clause
"""One round through a loader: in this process, or by workers."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from modtree._tensor.random import bits_of
from modtree.utils.data._fetch import Reading
from modtree.utils.data._pool import Pool
from modtree.utils.data._worker import Job

if TYPE_CHECKING:
    from modtree.utils.data.dataloader import DataLoader

__all__ = ["_BaseDataLoaderIter", "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"]


class _BaseDataLoaderIter:
    """An iterator over batches."""

    def __init__(self, loader: DataLoader) -> None:
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._reading = Reading(
            loader.dataset,
            loader._streams,
            loader.batch_sampler is not None,
            loader.collate_fn,
            loader.drop_last,
        )
        self._begin(loader)
        # Also where no worker needs it: the numbers that come after are the same with workers.
        self._base_seed = int(bits_of(loader.generator).integers(2**63))

    def _begin(self, loader: DataLoader) -> None:
        # Keys are asked for here, not at the first batch: a round begins when it is made.
        self._keys: Iterator[Any] = iter(self._index_sampler)
        # list() asks for the length as a hint, after this: that must not count as a promise for
        # this round.
        self._announced = loader._announced
        self._yielded = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._next_data()
        self._yielded += 1
        if self._announced is not None and self._yielded > self._announced:
            self._warn_of_length()
        return batch

    def _next_data(self) -> Any:
        raise NotImplementedError

    def _warn_of_length(self) -> None:
        text = (
            f"Length of IterableDataset {self._reading.dataset} was reported to be "
            f"{self._announced} (when accessing len(dataloader)), but {self._yielded} samples have "
            f"been fetched."
        )
        if self._num_workers > 0:
            text += (
                " Each worker reads the whole stream unless the dataset asks get_worker_info() "
                "which part is its own."
            )
        warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled; pickle the loader")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._read = self._reading.begin()

    def _next_data(self) -> Any:
        return self._read(next(self._keys))


class _Task:
    """A batch that was asked for."""

    __slots__ = ("answer", "worker")

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.answer: tuple[str, Callable[[], Any]] | None = None


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches made by workers, a fixed number of them ahead of what is asked for."""

    def __init__(self, loader: DataLoader) -> None:
        if not loader.prefetch_factor:
            raise AssertionError(
                f"prefetch_factor must be greater than 0 for {type(self).__name__}, got "
                f"{loader.prefetch_factor}"
            )
        self._round = -1
        super().__init__(loader)
        self._in_order = loader.in_order
        self._timeout = loader.timeout
        self._persistent = loader.persistent_workers
        self._each = loader.prefetch_factor
        jobs = [
            Job(i, self._num_workers, self._base_seed, self._reading, loader.worker_init_fn)
            for i in range(self._num_workers)
        ]
        self._pool = Pool(jobs, loader.multiprocessing_context)
        weakref.finalize(self, self._pool.close)
        try:
            self._prefetch()
        except BaseException:
            self._pool.close()  # nobody has this iterator but the traceback
            raise

    def _begin(self, loader: DataLoader) -> None:
        super()._begin(loader)
        self._round += 1
        self._numbers = itertools.count()
        self._tasks: dict[int, _Task] = {}  # in the order in which they were given out
        self._turns = itertools.cycle(range(self._num_workers))
        self._active = set(range(self._num_workers))
        self._finished = False

    def _reset(self, loader: DataLoader) -> None:
        """A new round with the same workers; what the last one left over is dropped."""
        self._begin(loader)
        self._prefetch()

    def _prefetch(self) -> None:
        for _ in range(self._each * self._num_workers):
            self._give_out()

    def _give_out(self) -> None:
        worker = self._whose_turn()
        if worker is None:
            return
        try:
            key = next(self._keys)
        except StopIteration:
            return
        number = next(self._numbers)
        self._tasks[number] = _Task(worker)
        self._pool.ask(worker, self._round, number, key)

    def _whose_turn(self) -> int | None:
        for worker in itertools.islice(self._turns, self._num_workers):
            if worker not in self._active:
                continue
            if self._in_order or self._load_of(worker) < self._each:
                return worker
        return None

    def _load_of(self, worker: int) -> int:
        return sum(task.worker == worker for task in self._tasks.values())

    def _next_data(self) -> Any:
        while True:
            number = self._ready_task()
            if number is not None:
                break
            if self._finished or not self._tasks:
                self._finish()
                raise StopIteration
            if self._pool.closed:
                raise RuntimeError(
                    "the workers of this iterator have ended; take a new one with iter(loader)"
                )
            self._take_answer()
        answer = self._tasks.pop(number).answer
        assert answer is not None
        self._give_out()
        kind, load = answer
        if kind == "failure":
            raise load().exception() from None
        return load()

    def _ready_task(self) -> int | None:
        """The task whose batch is the next one to hand out, if it is there."""
        for number, task in self._tasks.items():
            if task.answer is not None:
                return number
            if self._in_order:
                break
        return None

    def _take_answer(self) -> None:
        worker, (number, task, kind), load = self._pool.answer(self._timeout)
        if number != self._round or task not in self._tasks:
            return
        if kind == "end":
            self._end_of_stream(worker)
        else:
            self._tasks[task].answer = (kind, load)

    def _end_of_stream(self, worker: int) -> None:
        self._active.discard(worker)
        gone = [n for n, t in self._tasks.items() if t.worker == worker and t.answer is None]
        for number in gone:
            del self._tasks[number]
        if not self._persistent:
            self._pool.stop(worker)
        for _ in gone:
            self._give_out()

    def _finish(self) -> None:
        self._finished = True
        if not self._persistent:
            self._pool.close()
