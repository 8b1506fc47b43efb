# SPDX-License-Identifier: BSD-3-Clause
"""Batches of a dataset."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from modtree.utils.data._iterators import (
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from modtree.utils.data._workers import get_worker_info
from modtree.utils.data.collate import default_collate, default_convert
from modtree.utils.data.dataset import IterableDataset
from modtree.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "get_worker_info"]

# What decides how the dataset is read, and so cannot change under a loader.
_FIXED = frozenset(
    ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
)


class _Forever(Sampler[None]):
    """Keys for datasets that have none."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader:
    """Iterates over batches of a dataset; each iteration is a new round.

    Args:
        dataset: what to read.
        batch_size: samples in a batch; None gives single samples.
        shuffle: a new random order each round.
        sampler: gives the keys, in place of ``shuffle``.
        batch_sampler: gives lists of keys, in place of all of these and ``drop_last``.
        num_workers: processes that make batches; 0 makes them in this one. The batches and their
            order are the same.
        collate_fn: makes a batch of a list of samples.
        pin_memory: kept, without effect, like ``pin_memory_device``: there is no other device to
            copy to.
        drop_last: leave out a last batch that is shorter.
        timeout: seconds to wait for a batch of a worker; 0 for any time.
        worker_init_fn: called in each worker with its number, after it is seeded.
        multiprocessing_context: how workers are started, "fork", "spawn" or "forkserver", or a
            context of :mod:`multiprocessing`; None for the default of that.
        generator: a :class:`modtree.Generator` for the order, and for the seed of the workers.
        prefetch_factor: batches that each worker makes ahead; 2 by default.
        persistent_workers: keep the workers for the next round. There is one iterator then, and
            each ``iter(loader)`` starts it again.
        in_order: kept, without effect: batches come in order.

    Raises:
        ValueError: arguments that exclude each other, or one out of its range; on setting what is
            fixed.

    Example:
        >>> from modtree.utils.data import DataLoader, TensorDataset
        >>> dataset = TensorDataset(mt.randn(100, 3), mt.arange(100))
        >>> for inputs, labels in DataLoader(dataset, batch_size=64, shuffle=True):
        ...     print(inputs.shape, labels.shape)
        modtree.Size([64, 3]) modtree.Size([64])
        modtree.Size([36, 3]) modtree.Size([36])
    """

    _initialized = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if isinstance(dataset, IterableDataset):
            _check_stream(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, "
                    "sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        self._streams = isinstance(dataset, IterableDataset)
        if sampler is None:
            if self._streams:
                sampler = _Forever()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            numbers: Any = sampler
            batch_sampler = BatchSampler(numbers, batch_size, drop_last)
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.collate_fn = collate_fn
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._announced: int | None = None
        self._iterator: Any = None
        self._initialized = True
        _warn_of_many(num_workers)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized; "
                f"make another loader"
            )
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of :mod:`multiprocessing`, or None for its default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: Any) -> None:
        self._context = _checked_context(value, self.num_workers)

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _get_iterator(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> Iterator[Any]:
        if not self.persistent_workers:
            return self._get_iterator()
        if self._iterator is None or self._iterator._pool.closed:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    def __len__(self) -> int:
        """The number of batches; of a stream, what its own length says."""
        if not self._streams:
            return len(self._index_sampler)
        length = self._announced = len(self.dataset)
        if self.batch_size is not None:
            length = length // self.batch_size if self.drop_last else -(-length // self.batch_size)
        return length


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            f"num_workers option should be non-negative, got {num_workers}; use num_workers=0"
        )
    if timeout < 0:
        raise ValueError(f"timeout option should be non-negative, got {timeout}")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified with num_workers > 0; set it to None"
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _checked_context(value: Any, num_workers: int) -> Any:
    if value is None:
        return None
    if num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading "
            f"(num_workers > 0), but got num_workers={num_workers}"
        )
    if isinstance(value, str):
        methods = multiprocessing.get_all_start_methods()
        if value not in methods:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in "
                f"{methods!r}, but got multiprocessing_context={value!r}"
            )
        return multiprocessing.get_context(value)
    if not isinstance(value, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={value}"
        )
    return value


def _warn_of_many(num_workers: int) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores is not None and num_workers > cores:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested "
            f"max number of worker in current system is {cores}, which is smaller: more of them "
            f"may make loading slower",
            stacklevel=3,
        )


def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    # Samples come in the order of the stream.
    for name, value in (
        ("shuffle", shuffle),
        ("sampler", sampler),
        ("batch_sampler", batch_sampler),
    ):
        if value is not None and not (name == "shuffle" and value is False):
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )
