# SPDX-License-Identifier: BSD-3-Clause
"""One round through a loader: in this process, or by workers."""

from __future__ import annotations

import collections
import itertools
import multiprocessing
import pickle
import warnings
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from modtree.numpy.tensor.random import bits_of
from modtree.utils.data._fetch import Reading
from modtree.utils.data._workers import Pool, WorkerInfo, failure_of

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
        self._timeout = loader.timeout
        self._persistent = loader.persistent_workers
        self._ahead = loader.prefetch_factor * self._num_workers
        self._pool = Pool()
        weakref.finalize(self, self._pool.close)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        try:
            for i in range(self._num_workers):
                info = WorkerInfo(i, self._num_workers, self._base_seed + i, self._reading.dataset)
                self._pool.start(info, self._reading, loader.worker_init_fn, context)
            self._prefetch()
        except BaseException:
            self._pool.close()  # nobody has this iterator but the traceback
            raise

    def _begin(self, loader: DataLoader) -> None:
        super()._begin(loader)
        self._round += 1
        self._asked: collections.deque[int] = collections.deque()  # workers, in the order of keys
        self._turns = itertools.cycle(range(self._num_workers))
        self._active = set(range(self._num_workers))

    def _reset(self, loader: DataLoader) -> None:
        """A new round with the same workers; what the last one left over is dropped."""
        self._begin(loader)
        self._prefetch()

    def _prefetch(self) -> None:
        for _ in range(self._ahead):
            self._give_out()

    def _give_out(self) -> None:
        some = itertools.islice(self._turns, self._num_workers)
        worker = next((w for w in some if w in self._active), None)
        if worker is None:
            return
        try:
            key = next(self._keys)
        except StopIteration:
            return
        self._pool.ask(worker, self._round, key)
        self._asked.append(worker)

    def _next_data(self) -> Any:
        while self._asked:
            if self._pool.closed:
                raise RuntimeError(
                    "the workers of this iterator have ended; take a new one with iter(loader)"
                )
            if self._asked[0] not in self._active:  # its stream has ended
                self._asked.popleft()
                continue
            kind, body = self._pool.answer(self._asked[0], self._round, self._timeout)
            worker = self._asked.popleft()
            if kind == "end":
                self._active.discard(worker)
            self._give_out()
            if kind == "failure":
                raise failure_of(body) from None
            if kind == "batch":
                return pickle.loads(body)
        if not self._persistent:
            self._pool.close()
        raise StopIteration
