# SPDX-License-Identifier: BSD-3-Clause
"""Which files of DeepSpeed are in a folder, where in the flat vectors of ZeRO's ranks each
parameter is, and how the parts of model-parallel ranks are put together.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.checkpoint.untrusted import file_beside
from modtree.files.distributed.ranks import Joins, Rule
from modtree.files.torch.sources import Piece

# -- files -----------------------------------------------------------------------------------------

_NAME = re.compile(
    r"(?:(?:bf16_|fp16_)?zero_pp_rank_(\d{1,6})_)?mp_rank_(\d{1,6})_(model|optim)_states\.pt"
)
_LAYER = re.compile(r"layer_\d{1,6}-model_\d{1,6}-model_states\.pt")
_LONGEST_TAG = 200


class Files(NamedTuple):
    """The files of states, by rank: what the model has, and what the optimizer has."""

    model: dict[int, str]
    optimizer: dict[int, str]


def step_folder(path: str) -> str:
    """The folder of the step that the file ``latest`` names; the folder itself without one.

    Raises:
        CheckpointError: It is not there.
    """
    latest = os.path.join(path, "latest")
    if not os.path.isfile(latest):
        return path
    with open(latest, "rb") as file:
        tag = file.read(_LONGEST_TAG + 1).decode("utf-8", "replace").strip()
    if len(tag) > _LONGEST_TAG:
        raise CheckpointError("it does not name a folder", latest)
    folder = file_beside(tag, latest, "the file latest")
    if not os.path.isdir(folder):
        raise CheckpointError(f"it names the folder {shortened(tag)}, which is not there", latest)
    return folder


def files_in(folder: str) -> dict[int, Files]:
    """The files of a step, by the number of the model-parallel rank.

    Raises:
        CheckpointError: There are none of the model.
    """
    found: dict[int, Files] = {}
    for name in sorted(os.listdir(folder)):
        if (match := _NAME.fullmatch(name)) is None:
            continue
        rank, model_rank, kind = match.groups()
        files = found.setdefault(int(model_rank), Files({}, {}))
        own = files.model if kind == "model" else files.optimizer
        own.setdefault(int(rank or 0), os.path.join(folder, name))
    lacking = [rank for rank, files in found.items() if not files.model]
    if lacking or not found:
        of_rank = f" of model-parallel rank {lacking[0]}" if len(found) > 1 else ""
        there = " and files of optimizer states" if found else ""
        raise CheckpointError(f"no file *_model_states.pt{of_rank} is in the folder{there}", folder)
    return dict(sorted(found.items()))


def layers_in(folder: str) -> list[str]:
    """The names of the files of a pipeline's layers."""
    return sorted(filter(_LAYER.fullmatch, os.listdir(folder)))


# -- partitions ------------------------------------------------------------------------------------

# In stages 1 and 2 the parameters of a group are one vector, which the ranks have one part after
# the other. In stage 3 each rank has an equal part of each parameter, one parameter after the
# other; the last part is padded.


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


# -- model-parallel ranks --------------------------------------------------------------------------

_INFO = "universal_checkpoint_info"
#: What is said of tensors that are not split into rows: by the name of the list of patterns.
_RULES = {
    "tp_replicated_parameter_patterns": Rule(None),
    "parameter_to_average_patterns": Rule(None, is_mean=True),
    "parameter_with_row_parallelism_patterns": Rule(1),
    "parameter_with_2_sub_params_cat_dim_0": Rule(0, 2),
}
_PADDED = "vocabulary_parameter_patterns"
_ROWS = "original_vocab_size"
_OTHERS = ("parameter_with_sub_params", "affine_map")
#: Regular expressions of a stranger: of names and digits, and few that repeat.
_PLAIN = re.compile(r"(?:[\w^$-]|\\?\.|\\[d_-]|\[0-9\]|(?:\.|\\d|\[0-9\])[+*])*")
_MOST_PATTERNS = 1000
_LONGEST = 300
#: Steps that all comparisons of names with patterns take together, at most.
_MOST_STEPS = 50_000_000


class UniversalRules:
    """Rules from the state of a model-parallel rank, after those of the caller.

    Args:
        state: What the file of the first rank holds.
        joins: The rules of the caller, or None.
        path: Of the file, for errors.

    Attributes:
        are_there: False where neither the file nor the caller says how.

    Raises:
        CheckpointError: The file has patterns of another kind.
    """

    def __init__(self, state: dict[Any, Any], joins: Joins | None, path: str) -> None:
        info = state.get(_INFO)
        self._joins, self._path = joins, path
        self._steps = 0
        self._is_said = isinstance(info, dict) and bool(info)
        self._patterns: list[tuple[re.Pattern[str], int, Rule]] = []
        if not isinstance(info, dict):
            return
        if other := [name for name in _OTHERS if info.get(name)]:
            raise CheckpointError(f"its ranks are split by {other[0]}, which is not known", path)
        rows = info.get(_ROWS)
        is_known = type(rows) is int and 0 < rows < 1 << 40
        padded = Rule(0, rows=rows if is_known else None)
        for name, rule in {_PADDED: padded, **_RULES}.items():
            for pattern in self._listed(info, name):
                repeats = 1 + len(re.findall(r"[+*]", pattern))
                self._patterns.append((re.compile(pattern), repeats, rule))

    @property
    def are_there(self) -> bool:
        return self._is_said or self._joins is not None

    def _listed(self, info: dict[Any, Any], name: str) -> Iterator[str]:
        patterns = info.get(name) or ()
        if not isinstance(patterns, (list, tuple)) or len(patterns) > _MOST_PATTERNS:
            raise CheckpointError(f"its {name} are {shortened(patterns)}", self._path)
        for pattern in patterns:
            is_plain = type(pattern) is str and len(pattern) <= _LONGEST
            if not is_plain or not _PLAIN.fullmatch(pattern):
                raise CheckpointError(
                    f"its {name} have the pattern {shortened(pattern)}, which is not one of names "
                    f"and digits",
                    self._path,
                )
            yield pattern

    def rule(self, key: str) -> Rule | None:
        """The rule for a key, which begins with the part that it is in."""
        rule = None if self._joins is None else self._joins.rule(key)
        if rule is not None or not self._is_said:
            return rule
        name = key.partition(".")[2]
        for pattern, repeats, rule in self._patterns:
            self._steps += min(len(name) + 1, _MOST_STEPS) ** repeats
            if self._steps > _MOST_STEPS:
                raise CheckpointError("its patterns of names take too long", self._path, key)
            if pattern.match(name):
                return rule
        return Rule(0)  # as DeepSpeed puts together what no pattern names
