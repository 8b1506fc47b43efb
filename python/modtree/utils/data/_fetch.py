# SPDX-License-Identifier: BSD-3-Clause
"""How a batch is read, in this process or in a worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from modtree.numpy.tensor.tensor import Tensor
from modtree.utils.data.collate import default_collate
from modtree.utils.data.dataset import Subset, TensorDataset, fetch

__all__ = ["Reading"]


@dataclass(frozen=True)
class Reading:
    """What decides how a dataset is read; can be sent to a worker.

    Attributes:
        dataset: what to read.
        streams: it gives samples in its own order, without keys.
        batched: a key is a list of keys; else it is one.
        collate_fn: makes a batch of samples, or converts one.
        drop_last: leave out the last batch of a stream where it is shorter.
    """

    dataset: Any
    streams: bool
    batched: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool

    def begin(self) -> Callable[[Any], Any]:
        """A function from a key to its batch, for one round; at the end of a stream it raises
        StopIteration.
        """
        if not self.streams:
            return self._look_up
        samples = iter(self.dataset)
        return lambda key: self._take(samples, key)

    def _look_up(self, key: Any) -> Any:
        if not self.batched:
            return self.collate_fn(self.dataset[key])
        batch = None
        if self.collate_fn is default_collate:
            batch = _rows_together(self.dataset, key)
        return self.collate_fn(fetch(self.dataset, key)) if batch is None else batch

    def _take(self, samples: Iterator[Any], key: Any) -> Any:
        if not self.batched:
            return self.collate_fn(next(samples))
        some = list(itertools.islice(samples, len(key)))
        if not some or (self.drop_last and len(some) < len(key)):
            raise StopIteration
        return self.collate_fn(some)


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
