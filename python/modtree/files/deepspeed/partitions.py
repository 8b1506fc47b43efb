# SPDX-License-Identifier: BSD-3-Clause
"""Where in the flat vectors of ZeRO's ranks each parameter is.

In stages 1 and 2 the parameters of a group are one vector, which the ranks have one part after the
other. In stage 3 each rank has an equal part of each parameter, one parameter after the other; the
last part is padded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.torch.assembled import Piece

__all__ = ["Vector", "of_groups", "of_ranks"]


class Vector(NamedTuple):
    """A flat vector in a file: its length, what reads it, and the file."""

    length: int
    read: Callable[[], np.ndarray]
    file: str


class Parameter(NamedTuple):
    """A parameter: its name, its shape, and the parts of it as a flat vector."""

    name: str
    shape: tuple[int, ...]
    pieces: list[Piece]


def _piece(vector: Vector, begin: int, count: int, at: int) -> Piece:
    """Some numbers of a vector, as those from ``at`` on of a parameter."""
    return Piece((at,), (count,), lambda: vector.read()[begin : begin + count], vector.file)


def _stretch(vectors: Sequence[Vector], begin: int, count: int, at: int = 0) -> Iterator[Piece]:
    """Some numbers of vectors that follow each other."""
    start = 0
    for vector in vectors:
        first, last = max(begin, start), min(begin + count, start + vector.length)
        if first < last:
            yield _piece(vector, first - start, last - first, at + first - begin)
        start += vector.length


def of_groups(
    groups: Sequence[dict[str, tuple[int, ...]]],
    ranks: Sequence[Sequence[Vector]],
    paddings: Sequence[Sequence[int]] | None,
    path: str,
) -> Iterator[Parameter]:
    """The parameters of stages 1 and 2.

    Args:
        groups: Shapes by name, for each group.
        ranks: The vectors of the groups, for each rank.
        paddings: How many numbers follow each parameter of each group; None for none.
        path: Of the folder, for errors.

    Raises:
        CheckpointError: The vectors are too short, or too long.
    """
    align = 2 * len(ranks)
    for number, shapes in enumerate(groups):
        vectors = [vectors[number] for vectors in ranks]
        begin = 0
        for place, (name, shape) in enumerate(shapes.items()):
            count = math.prod(shape)
            yield Parameter(name, shape, list(_stretch(vectors, begin, count)))
            begin += count + (paddings[number][place] if paddings else 0)
        held = sum(vector.length for vector in vectors)
        # Ranks pad to this multiple, and some versions leave the padding out again.
        if -(-begin // align) != -(-held // align):
            raise CheckpointError(
                f"the parameters of group {number} have {begin:,} elements, and the "
                f"{len(ranks)} ranks have {held:,}",
                path,
            )


def of_ranks(
    shapes: dict[str, tuple[int, ...]], ranks: Sequence[Sequence[Vector]], path: str
) -> Iterator[Parameter]:
    """The parameters of stage 3.

    Args:
        shapes: By name, in the order of the vectors.
        ranks: The vectors of each rank, which follow each other.
        path: Of the folder, for errors.

    Raises:
        CheckpointError: The vectors are too short.
    """
    begin = 0
    held = min((sum(vector.length for vector in vectors) for vectors in ranks), default=0)
    for name, shape in shapes.items():
        count = math.prod(shape)
        each = -(-count // len(ranks))
        pieces: list[Piece] = []
        for number, vectors in enumerate(ranks):
            own = min(each, count - number * each)
            if own > 0:
                pieces += _stretch(vectors, begin, own, number * each)
        yield Parameter(name, shape, pieces)
        begin += each
    if begin > held:
        raise CheckpointError(
            f"each rank is to have {begin:,} elements of the parameters, and has {held:,}", path
        )
