# SPDX-License-Identifier: BSD-3-Clause
"""Values of tensors that are read when they are asked for, from wherever they are: in one piece, or
in several, each of which is a box of the tensor in a file.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, bytes_of
from modtree.files.checkpoint.dtypes import array_dtype


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


# -- pieces ----------------------------------------------------------------------------------------

#: How many pairs of pieces are compared. Rows, columns and grids of thousands of ranks need fewer.
_MOST_COMPARED = 4_000_000


class Piece(NamedTuple):
    """A box of a tensor.

    Attributes:
        offsets: Where it begins in each dimension.
        sizes: Its shape.
        read: Gives its values.
        file: Where they are.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    read: Callable[[], np.ndarray]
    file: str


class Assembled(Source):
    """Values in pieces.

    Args:
        shape: The shape of the tensor.
        dtype: torch's name of its dtype.
        pieces: What it is made of.
        path: What was opened, for errors.
        key: Of the tensor, for errors.
        layout: The shape in which pieces lie, where that is another one: a flat vector.
        hint: What to add to the error where pieces are missing.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        pieces: Sequence[Piece],
        path: str,
        key: str,
        layout: tuple[int, ...] | None = None,
        hint: str = "",
    ) -> None:
        self._shape = shape
        self._dtype = dtype
        self._pieces = [piece for piece in pieces if math.prod(piece.sizes)]
        self._path, self._key = path, key
        self._layout = shape if layout is None else layout
        self._hint = hint
        self._is_covered = False
        self.files = tuple(dict.fromkeys(piece.file for piece in pieces))

    def _error(self, reason: str, file: str | None = None) -> CheckpointError:
        return CheckpointError(reason, file or self._path, self._key)

    def array(self) -> np.ndarray:
        self._check_coverage()
        found = self._box([0] * len(self._layout), list(self._layout))
        return aligned(found.reshape(self._shape))

    def part(self, index: Any) -> np.ndarray:
        starts, stops, inner = boxed(index, self._shape)
        self._check_coverage()
        if self._layout == self._shape:
            return aligned(self._box(starts, stops)[inner])
        if not self._shape:
            return self.array()[inner]
        row = math.prod(self._shape[1:])  # the rows of the box lie in the vector in one stretch
        rows = self._box([starts[0] * row], [stops[0] * row])
        block = rows.reshape(stops[0] - starts[0], *self._shape[1:])
        rest = (slice(None), *map(slice, starts[1:], stops[1:]))
        return aligned(block[rest][inner])

    def pieces(self, size: int) -> Iterator[memoryview]:
        self._check_coverage()
        if not self._layout:
            yield bytes_of(self.array())
            return
        rows, *rest = self._layout
        itemsize = array_dtype(self._dtype).itemsize
        step = max(1, size // max(1, math.prod(rest) * itemsize))
        for start in range(0, rows if math.prod(rest) else 0, step):
            stop = min(start + step, rows)
            block = self._box([start, *[0] * len(rest)], [stop, *rest])
            if block.dtype.name != self._dtype:
                raise self._error(
                    f"reading {self._dtype} takes the package ml_dtypes (pip install ml_dtypes)"
                )
            yield bytes_of(block.astype(block.dtype.newbyteorder("<"), copy=False))

    def check(self) -> Iterator[CheckpointError]:
        try:
            self._check_coverage()
        except CheckpointError as error:
            yield error
        for piece in self._pieces:
            try:
                self._read(piece)
            except CheckpointError as error:
                yield error

    def _read(self, piece: Piece) -> np.ndarray:
        try:
            array = piece.read()
        except CheckpointError as error:
            if error.tensor is None:
                raise self._error(error.reason, error.file) from None
            raise
        if array.shape != piece.sizes:
            raise self._error(
                f"a piece of it is to have the shape {list(piece.sizes)}, and has "
                f"{list(array.shape)}",
                piece.file,
            )
        known = (self._dtype, "float32" if self._dtype == "bfloat16" else self._dtype)
        if array.dtype.name not in known:
            raise self._error(
                f"a piece of it is to be of {self._dtype}, and is of {array.dtype.name}",
                piece.file,
            )
        return array

    def _box(self, starts: list[int], stops: list[int]) -> np.ndarray:
        """The values in a box: those of one piece where they are, of several in a copy."""
        sizes = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
        found: list[tuple[Any, np.ndarray]] = []
        for piece in self._pieces:
            within = [
                (max(a, start), min(a + n, stop))
                for a, n, start, stop in zip(piece.offsets, piece.sizes, starts, stops, strict=True)
            ]
            if any(first >= last for first, last in within):
                continue
            values = _cut(self._read(piece), within, piece.offsets)
            if values.shape == sizes:
                return values
            found.append((within, values))
        # Made when all pieces are there: what a file says of its size may be wrong.
        result = np.empty(sizes, found[0][1].dtype if found else self._empty_dtype())
        for within, values in found:
            _cut(result, within, starts)[...] = values
        return result

    def _empty_dtype(self) -> np.dtype:
        try:
            return array_dtype(self._dtype).newbyteorder("=")
        except TypeError as error:
            if self._dtype == "bfloat16":
                return np.dtype("float32")
            raise self._error(str(error)) from None

    # -- whether pieces cover it -------------------------------------------------------------------

    def _check_coverage(self) -> None:
        """Whether the pieces cover all of it, each place once.

        Raises:
            CheckpointError: They do not.
        """
        if self._is_covered:
            return
        for piece in self._pieces:
            fits = len(piece.offsets) == len(piece.sizes) == len(self._layout)
            if not fits or any(
                a < 0 or n < 0 or a + n > size
                for a, n, size in zip(piece.offsets, piece.sizes, self._layout, strict=True)
            ):
                raise self._error(
                    f"a piece at {list(piece.offsets)} of shape {list(piece.sizes)} leads out of "
                    f"the shape {list(self._layout)}",
                    piece.file,
                )
        self._check_overlaps()
        held = sum(math.prod(piece.sizes) for piece in self._pieces)
        lacking = math.prod(self._layout) - held
        if lacking:
            raise self._error(
                f"its pieces do not cover it: {lacking:,} of {math.prod(self._layout):,} elements "
                f"are in no file{self._hint}"
            )
        self._is_covered = True

    def _check_overlaps(self) -> None:
        if not self._layout:
            if len(self._pieces) > 1:
                raise self._error("two of its pieces overlap")
            return
        cuts = [len({p.offsets[dim] for p in self._pieces}) for dim in range(len(self._layout))]
        along = cuts.index(max(cuts))  # few pieces lie side by side at one place of it
        active: list[Piece] = []
        compared = 0
        for piece in sorted(self._pieces, key=lambda piece: piece.offsets[along]):
            start = piece.offsets[along]
            active = [p for p in active if p.offsets[along] + p.sizes[along] > start]
            compared += len(active)
            if compared > _MOST_COMPARED:
                raise self._error(f"its {len(self._pieces):,} pieces lie in no order")
            for other in active:
                if all(
                    a < b + m and b < a + n
                    for a, n, b, m in zip(
                        piece.offsets, piece.sizes, other.offsets, other.sizes, strict=True
                    )
                ):
                    raise self._error("two of its pieces overlap", piece.file)
            active.append(piece)


def _cut(array: np.ndarray, box: list[tuple[int, int]], begin: Sequence[int]) -> np.ndarray:
    """The part of an array that has a box; an array of no dimensions stays one."""
    index: Any = tuple(slice(a - at, b - at) for (a, b), at in zip(box, begin, strict=True))
    return array[index] if index else array
