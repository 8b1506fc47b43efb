# SPDX-License-Identifier: BSD-3-Clause
"""Samplers: in which order a dataset is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from modtree.numpy.tensor.dtypes import float64
from modtree.numpy.tensor.from_data import as_tensor
from modtree.numpy.tensor.random import Generator, default_generator
from modtree.numpy.tensor.random_creation import randint, randperm
from modtree.numpy.tensor.sampling import multinomial

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

_T_co = TypeVar("_T_co", covariant=True)


class Sampler(Generic[_T_co]):
    """Base of the samplers. A subclass gives ``__iter__``, and ``__len__`` if a loader shall have
    one.
    """

    def __iter__(self) -> Iterator[_T_co]:
        raise NotImplementedError(f"{type(self).__name__} must implement __iter__")


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... for every sample of ``data_source``."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Samples of ``data_source`` in random order.

    Args:
        data_source: anything with a length.
        replacement: draw each from all, so that some come more than once.
        num_samples: how many to draw; all by default. More than all without replacement: several
            orders in a row.
        generator: a :class:`modtree.Generator`. Without one each round takes its seed from the
            default generator.

    Raises:
        TypeError: ``replacement`` is no bool.
        ValueError: ``num_samples`` is no positive integer.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _check_count("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many are drawn; follows the dataset's length if not given."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, wanted = len(self.data_source), self.num_samples
        generator = self.generator
        if generator is None:
            # One number of the default stream for the whole round: what else is drawn meanwhile
            # changes nothing here.
            generator = Generator().manual_seed(int(default_generator.numpy.integers(2**63)))
        if self.replacement:
            for start in range(0, wanted, 1024):
                size = min(1024, wanted - start)
                yield from randint(0, n, (size,), generator=generator).tolist()
            return
        while wanted > 0:
            yield from randperm(n, generator=generator).tolist()[:wanted]
            wanted -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probabilities in proportion to weights, which need not sum to 1.

    Args:
        weights: one for each sample.
        num_samples: how many to draw.
        replacement: whether an index may come again.
        generator: a :class:`modtree.Generator`; the default one if None.

    Raises:
        ValueError: ``num_samples``, ``replacement`` or the shape of the weights is wrong.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        _check_count("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights = as_tensor(weights, dtype=float64)
        if len(self.weights.shape) != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape "
                f"{tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """The indices of another sampler in lists of ``batch_size``.

    Args:
        sampler: a sampler, or anything that gives indices.
        batch_size: how many are in a list.
        drop_last: leave out a last list that is shorter.

    Raises:
        ValueError: ``batch_size`` is no positive integer or ``drop_last`` no bool.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _check_count("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
