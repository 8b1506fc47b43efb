# SPDX-License-Identifier: BSD-3-Clause
"""A sampler that gives each of several processes its share of a dataset."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sized
from typing import Any, TypeVar

from modtree.numpy.tensor.random import Generator
from modtree.numpy.tensor.random_creation import randperm
from modtree.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]

_T_co = TypeVar("_T_co", covariant=True)


class DistributedSampler(Sampler[_T_co]):
    """Every ``num_replicas``-th sample of ``dataset``, beginning with number ``rank``.

    All processes draw the same order, and have shares of equal length: samples from the beginning
    come a second time, or with ``drop_last`` the last ones not at all. Call :meth:`set_epoch`
    before each epoch, or all have the same order.

    Args:
        dataset: Anything with a length.
        num_replicas: The number of processes; without it 1, since processes are not joined here.
        rank: Which of them this is, from 0.
        shuffle: Draw a random order.
        seed: For the order; the same in all processes.
        drop_last: Leave out the samples that do not fill a round.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.num_replicas = 1 if num_replicas is None else num_replicas
        self.rank = 0 if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"Invalid rank {self.rank}, rank should be in the interval "
                f"[0, {self.num_replicas - 1}]"
            )
        self.dataset = dataset
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        count = len(dataset)
        if drop_last and count % self.num_replicas:
            self.num_samples = max(0, math.ceil((count - self.num_replicas) / self.num_replicas))
        else:
            self.num_samples = math.ceil(count / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _order(self) -> list[int]:
        count = len(self.dataset)
        if not self.shuffle:
            return list(range(count))
        generator = Generator()
        generator.manual_seed(self.seed + self.epoch)
        return randperm(count, generator=generator).tolist()

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        filled = itertools.islice(itertools.cycle(order), self.total_size)
        return itertools.islice(filled, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Another order for another epoch."""
        self.epoch = epoch
