# SPDX-License-Identifier: BSD-3-Clause
"""Batches of a dataset."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from modtree._tensor.tensor import Tensor
from modtree.utils.data.collate import default_collate, default_convert
from modtree.utils.data.dataset import IterableDataset, Subset, TensorDataset, fetch
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
        num_workers: kept for programs that set it. Batches are made in this process whatever it is;
            a positive number warns.
        collate_fn: makes a batch of a list of samples.
        drop_last: leave out a last batch that is shorter.
        generator: a :class:`modtree.Generator` for the order.
        pin_memory: kept, without effect: there is no other device to copy to. The same holds for
            ``timeout``, ``worker_init_fn``, ``multiprocessing_context``, ``prefetch_factor``,
            ``persistent_workers``, ``pin_memory_device`` and ``in_order``.

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
        if num_workers > 0:
            warnings.warn(
                f"num_workers={num_workers}: batches are made in this process; set num_workers=0",
                stacklevel=2,
            )
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
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized; "
                f"make another loader"
            )
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        # Keys are asked for here, not at the first batch: a round begins when it is made.
        keys = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        if not self._streams:
            return self._batches(keys)
        # list() asks for the length as a hint, after this: that must not count as a promise for
        # this round.
        return self._stream(keys, iter(self.dataset), self._announced)

    def _batches(self, keys: Iterator[Any]) -> Iterator[Any]:
        for key in keys:
            if self.batch_sampler is None:
                yield self.collate_fn(self.dataset[key])
                continue
            batch = None
            if self.collate_fn is default_collate:
                batch = _rows_together(self.dataset, key)
            yield self.collate_fn(fetch(self.dataset, key)) if batch is None else batch

    def _stream(
        self, keys: Iterator[Any], samples: Iterator[Any], announced: int | None
    ) -> Iterator[Any]:
        for number, key in enumerate(keys, 1):
            if self.batch_sampler is None:
                for sample in samples:
                    batch = self.collate_fn(sample)
                    break
                else:
                    return
            else:
                some = list(itertools.islice(samples, len(key)))
                if not some or (self.drop_last and len(some) < len(key)):
                    return
                batch = self.collate_fn(some)
            if announced is not None and number > announced:
                warnings.warn(
                    f"Length of IterableDataset {self.dataset} was reported to be {announced} "
                    f"(when accessing "
                    f"len(dataloader)), but {number} samples have been fetched.",
                    stacklevel=2,
                )
            yield batch

    def __len__(self) -> int:
        """The number of batches; of a stream, what its own length says."""
        if not self._streams:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]
        length = self._announced = len(self.dataset)
        if self.batch_size is not None:
            length = length // self.batch_size if self.drop_last else -(-length // self.batch_size)
        return length


def get_worker_info() -> None:
    """None: batches are made in the main process."""
    return None


def _rows_together(dataset: Any, keys: Any) -> list[Any] | None:
    """What collating the samples of a TensorDataset, or of a part of one, gives: taken in one
    piece. None for other datasets.
    """
    # Exact classes: a subclass may have a __getitem__ of its own.
    while type(dataset) is Subset:
        dataset, keys = dataset.dataset, [dataset.indices[key] for key in keys]
    if type(dataset) is not TensorDataset or not keys:
        return None
    if not all(type(tensor) is Tensor for tensor in dataset.tensors):
        return None
    return [tensor[keys] for tensor in dataset.tensors]


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
