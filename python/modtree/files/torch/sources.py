# SPDX-License-Identifier: BSD-3-Clause
"""Values of tensors that are read when they are asked for, from wherever they are."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, bytes_of

__all__ = ["LateSource", "Source", "aligned", "boxed"]


class Source(abc.ABC):
    """The values of a tensor.

    Attributes:
        files: The files in which they are.
    """

    files: tuple[str, ...] = ()

    @abc.abstractmethod
    def array(self) -> np.ndarray:
        """All of them.

        Raises:
            CheckpointError: They are not there, or damaged.
        """

    def part(self, index: Any) -> np.ndarray:
        """Those that an index names, read without the others where that can be done."""
        return self.array()[index]

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Their bytes, little-endian, about ``size`` at once."""
        data = bytes_of(_little(self.array()))
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def check(self) -> Iterator[CheckpointError]:
        """All that is wrong with them; reads what has checksums."""
        try:
            self.array()
        except CheckpointError as error:
            yield error


class LateSource(Source):
    """What a function reads.

    Args:
        read: Gives the array.
        file: Where it reads.
    """

    def __init__(self, read: Callable[[], np.ndarray], file: str) -> None:
        self._read = read
        self.files = (file,)

    def array(self) -> np.ndarray:
        return self._read()


def _little(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def boxed(index: Any, shape: tuple[int, ...]) -> tuple[list[int], list[int], Any]:
    """The smallest box that has what an index names, and the index within that box.

    Args:
        index: A number, a slice, ``...``, or a tuple of them.
        shape: Of what is indexed.

    Returns:
        Where the box begins and ends in each dimension, and the index.

    Raises:
        IndexError: The index does not fit.
        TypeError: It is of another kind.
    """
    given = index if isinstance(index, tuple) else (index,)
    dots = sum(part is Ellipsis for part in given)
    if dots > 1 or len(given) - dots > len(shape):
        raise IndexError(f"{len(given)} indices, and the tensor has {len(shape)} dimensions")
    at = next((i for i, part in enumerate(given) if part is Ellipsis), len(given))
    missing = len(shape) - (len(given) - dots)
    full = (*given[:at], *[slice(None)] * missing, *given[at + 1 :])
    starts: list[int] = []
    stops: list[int] = []
    inner: list[Any] = []
    for part, n in zip(full, shape, strict=True):
        if isinstance(part, slice):
            chosen = range(n)[part]
            first = min(chosen[0], chosen[-1]) if chosen else 0
            last = max(chosen[0], chosen[-1]) + 1 if chosen else 0
            inner.append(slice(None) if chosen else slice(0))
            if chosen and abs(chosen.step) > 1 or (chosen and chosen.step < 0):
                inner[-1] = slice(None, None, chosen.step)
        elif hasattr(part, "__index__"):
            first = range(n)[part.__index__()]  # IndexError where there is none
            last = first + 1
            inner.append(0)
        else:
            raise TypeError(f"an index is a number, a slice or ..., got {type(part).__name__}")
        starts.append(first)
        stops.append(last)
    return starts, stops, tuple(inner)


def aligned(array: Any) -> np.ndarray:
    """Native code computes on aligned memory; files have their pieces anywhere."""
    return array if array.flags.aligned else array.copy()
