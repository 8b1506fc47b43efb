# SPDX-License-Identifier: BSD-3-Clause
"""Folders with a file of torch for each rank, whose tensors are put together by what they say, or
by rules.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from modtree.files.checkpoint.base import CheckpointError, bytes_of, closed_on_error
from modtree.files.distributed.placements import (
    LocalPart,
    NoPlacement,
    is_part,
    parts_of_rank,
)
from modtree.files.distributed.rank_files import files_of
from modtree.files.pickled.stand_in import StandIn, holds_stand_in, in_words
from modtree.files.torch.files import AssembledCheckpoint
from modtree.files.torch.records import TensorRecord, record_of_source
from modtree.files.torch.sources import Assembled, Piece, Source

# -- rules -----------------------------------------------------------------------------------------

#: The advice where it is not said how parts are put together; modtree.load() takes no rules.
HOW_TO_JOIN = (
    "say it, with modtree.load_file(path, join={'*.weight': 0}) or --join '*.weight=0' where that "
    "is dimension 0"
)

_MOST_BLOCKS = 1 << 20


class Rule(NamedTuple):
    """How the parts of a tensor are put together.

    Attributes:
        dim: The dimension in which they follow each other; None where all ranks have the same.
        blocks: How many tensors, one after the other in this dimension, a part is made of: each is
            put together by itself.
        rows: How many of that dimension are kept, where what follows is padding.
        is_mean: Whether the mean of all ranks counts, where they all have one.
    """

    dim: int | None
    blocks: int = 1
    rows: int | None = None
    is_mean: bool = False


class Rules(Protocol):
    """What says how the parts of a tensor are put together."""

    def rule(self, key: str) -> Rule | None:
        """The rule for a key; None where it is not said."""


class Joins:
    """Rules by patterns of keys; the first that matches counts.

    Args:
        rules: A dimension, or a dimension and a number of blocks, or None, for each pattern:
            ``{"*.q_proj.weight": 0, "*.gate_up.weight": (0, 2), "*": None}``.

    Raises:
        TypeError: They are of another kind.
        ValueError: A number is not a number of blocks.
    """

    def __init__(self, rules: Any) -> None:
        if not isinstance(rules, Mapping):
            raise TypeError(
                f"join maps patterns of keys to dimensions, such as {{'*.weight': 0}}; got "
                f"{type(rules).__name__}"
            )
        self._rules = [(pattern, _rule(pattern, value)) for pattern, value in rules.items()]

    def rule(self, key: str) -> Rule | None:
        """The rule for a key, which may also be named without the part that it is in."""
        names = (key, key.partition(".")[2])
        for pattern, rule in self._rules:
            if any(name and fnmatch.fnmatchcase(name, pattern) for name in names):
                return rule
        return None


def _rule(pattern: Any, value: Any) -> Rule:
    if not isinstance(pattern, str):
        raise TypeError(f"join maps patterns of keys to dimensions; got the pattern {pattern!r}")
    dim, blocks = value if isinstance(value, tuple) and len(value) == 2 else (value, 1)
    if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool)):
        raise TypeError(
            f"join maps {pattern!r} to a dimension, a dimension and a number of blocks, or None; "
            f"got {value!r}"
        )
    if not isinstance(blocks, int) or not 1 <= blocks <= _MOST_BLOCKS:
        raise ValueError(f"join gives {pattern!r} {blocks!r} blocks: expected a number from 1 on")
    return Rule(dim, blocks)


# -- putting together ------------------------------------------------------------------------------

_DEEPEST = 64


class Merging:
    """Goes through the objects of all ranks at once.

    Args:
        path: The folder.
        ranks: The numbers of the ranks.
        joins: The rules, or None.

    Attributes:
        has_tensors: Whether there are plain tensors.
        has_placements: Whether a tensor said how its parts are put together.
        unclear: What is wrong with tensors that could not be put together.
    """

    def __init__(self, path: str, ranks: list[int], joins: Rules | None) -> None:
        self._path, self._ranks, self._joins = path, ranks, joins
        self.has_tensors = self.has_placements = False
        self.unclear: list[CheckpointError] = []
        self._done: dict[tuple[int, ...], Any] = {}

    def merged(self, values: Sequence[Any], key: str, depth: int = 0) -> Any:
        """The objects of all ranks as one.

        Args:
            values: That of each rank.
            key: Where in the whole they are.
            depth: How deep that is.
        """
        known = tuple(map(id, values))
        if known in self._done:
            return self._done[known]
        first = values[0]
        if depth > _DEEPEST:
            return first
        if is_part(first):
            result = self._of_placements(values, key)
        elif type(first) is TensorRecord:
            self.has_tensors = True
            result = self._of_tensors(values, key)
        elif isinstance(first, dict) and all(isinstance(value, dict) for value in values):
            result = self._done[known] = type(first)()
            self._of_dicts(result, values, key, depth)
            versions = getattr(first, "_metadata", None)
            if versions is not None:
                setattr(result, "_metadata", versions)  # noqa: B010
        elif type(first) in (list, tuple) and len({(type(v), _length(v)) for v in values}) == 1:
            items = zip(*values, strict=True)
            made = [
                self.merged(item, f"{key}.{number}".strip("."), depth + 1)
                for number, item in enumerate(items)
            ]
            result = made if type(first) is list else tuple(made)
        else:
            return first
        self._done[known] = result
        return result

    def _of_dicts(self, result: Any, values: Sequence[Any], key: str, depth: int) -> None:
        for name in dict.fromkeys(name for value in values for name in value):
            there = [value[name] for value in values if name in value]
            inner = f"{key}.{name}" if key else str(name)
            rule = None if self._joins is None else self._joins.rule(inner)
            is_split = rule is not None and rule.dim is not None
            if len(there) < len(values) and type(there[0]) is TensorRecord and is_split:
                reason = f"{len(there)} of {len(values)} ranks have a part of it"
                result[name] = self._note_unclear(inner, reason, "parts of a tensor")
            else:
                result[name] = self.merged(there, inner, depth + 1)

    def _note_unclear(self, key: str, reason: str, parts: str, is_damage: bool = True) -> StandIn:
        error = CheckpointError(reason, self._path, key)
        error.is_damage = is_damage
        self.unclear.append(error)
        return in_words("torch.Tensor", f"{parts}: {reason:.200}")

    # -- tensors that say how --------------------------------------------------------------------

    def _of_placements(self, values: Sequence[Any], key: str) -> Any:
        self.has_placements = True
        boxes: dict[Any, Piece] = {}
        first: LocalPart | None = None
        try:
            for value in values:
                if not is_part(value):
                    raise NoPlacement("ranks have objects of different kinds")
                for part in parts_of_rank(value):
                    first = first or part
                    if part.shape != first.shape or part.dtype != first.dtype:
                        raise NoPlacement("ranks name different shapes or dtypes of it")
                    source: Any = part.record.source
                    file = source.files[0]
                    piece = Piece(part.offsets, part.record.shape, source.array, file)
                    boxes.setdefault((piece.offsets, piece.sizes), piece)
        except NoPlacement as error:
            is_damage = getattr(error, "is_damage", True)
            return self._note_unclear(key, str(error), "parts of a tensor", is_damage)
        if first is None:
            return self._note_unclear(key, "no rank has a shard of it", "a tensor without shards")
        missing = sorted(set(range(first.ranks)) - set(self._ranks))[:5]
        hint = f"; files of rank {', '.join(map(str, missing))} are missing" if missing else ""
        pieces = list(boxes.values())
        source = Assembled(first.shape, first.dtype.name, pieces, self._path, key, hint=hint)
        return record_of_source(source, first.dtype, first.shape)

    # -- tensors that do not ---------------------------------------------------------------------

    def _of_tensors(self, values: Sequence[Any], key: str) -> Any:
        first = values[0]
        if not all(type(value) is TensorRecord for value in values):
            return self._note_unclear(key, "ranks have objects of different kinds", "a tensor")
        if any(value.dtype != first.dtype or value.source is None for value in values):
            return self._note_unclear(key, "ranks have different dtypes of it", "a tensor")
        rule = None if self._joins is None else self._joins.rule(key)
        shapes = [value.shape for value in values]
        if rule is not None and rule.dim is not None and any(shapes):
            return self._joined(values, shapes, rule, key)
        if len(set(shapes)) > 1:
            sizes = ", ".join(str(list(shape)) for shape in dict.fromkeys(shapes))[:120]
            return self._note_unclear(
                key, "no rule of join= says how it is put together", f"parts of shape {sizes}"
            )
        if len(values) == 1:
            return first
        made = _Mean if rule is not None and rule.is_mean else _Same
        return record_of_source(made(values, self._ranks, self._path, key), first.dtype, shapes[0])

    def _joined(
        self, values: Sequence[Any], shapes: list[tuple[int, ...]], rule: Rule, key: str
    ) -> Any:
        missing = sorted(set(range(self._ranks[-1])) - set(self._ranks))
        if missing:
            numbers = ", ".join(map(str, missing[:5]))
            raise CheckpointError(f"files of rank {numbers} are missing", self._path, key)
        first, dim, blocks = values[0], rule.dim, rule.blocks
        dims = len(first.shape)
        assert dim is not None
        fits = all(len(shape) == dims for shape in shapes) and -dims <= dim < dims
        dim = dim % dims if fits else 0
        others = {shape[:dim] + shape[dim + 1 :] for shape in shapes} if fits else set()
        if len(others) != 1 or any(shape[dim] % blocks for shape in shapes):
            sizes = ", ".join(str(list(shape)) for shape in dict.fromkeys(shapes))[:120]
            raise CheckpointError(
                f"join= puts it together in dimension {rule.dim}, of {blocks} "
                f"{'block' if blocks == 1 else 'blocks'}, and ranks have the shapes {sizes}",
                self._path,
                key,
            )
        whole = sum(shape[dim] for shape in shapes)
        kept = whole if rule.rows is None else min(whole, rule.rows)
        pieces = []
        for block in range(blocks):
            at = whole // blocks * block
            for value in values:
                length = value.shape[dim] // blocks
                begin = [0] * dims
                begin[dim] = at
                used = min(length, max(0, kept - at))
                sizes_of = (*value.shape[:dim], used, *value.shape[dim + 1 :])
                read = _slice_of(value.source, dim, block * length, used)
                file = next(iter(value.source.files), self._path)  # an empty one is in none
                pieces.append(Piece(tuple(begin), sizes_of, read, file))
                at += length
        shape = (*first.shape[:dim], kept, *first.shape[dim + 1 :])
        source = Assembled(shape, first.dtype.name, pieces, self._path, key)
        source.files = _files_of(values)  # each part may itself be in several
        return record_of_source(source, first.dtype, shape)


def _bytes_in(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(bytes_of(array), np.uint8)


def _files_of(records: Sequence[TensorRecord]) -> tuple[str, ...]:
    """The files that have the values of any of them."""
    sources: list[Any] = [record.source for record in records]
    return tuple(dict.fromkeys(file for source in sources for file in source.files))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple)) else -1


def _slice_of(source: Source, dim: int, begin: int, length: int) -> Any:
    index = (slice(None),) * dim + (slice(begin, begin + length),)
    return lambda: source.array()[index]


class _Same(Source):
    """A tensor of which all ranks have a copy: that it is one shows when it is read."""

    def __init__(
        self, records: Sequence[TensorRecord], ranks: list[int], path: str, key: str
    ) -> None:
        self._sources: list[Any] = [record.source for record in records]
        self._ranks, self._path, self._key = ranks, path, key
        self.files = _files_of(records)

    def array(self) -> np.ndarray:
        first: np.ndarray = self._sources[0].array()
        for rank, source in zip(self._ranks[1:], self._sources[1:], strict=False):
            other = source.array()
            if not np.array_equal(_bytes_in(other), _bytes_in(first)):
                raise CheckpointError(
                    f"its values on rank {rank} are not those on rank {self._ranks[0]}, and no "
                    f"rule of join= says how it is put together",
                    self._path,
                    self._key,
                )
        return first


class _Mean(_Same):
    """A tensor of which each rank has a copy that went its own way: the mean of them."""

    def array(self) -> np.ndarray:
        total: np.ndarray = sum(source.array() for source in self._sources)
        return (total / len(self._sources)).astype(total.dtype)


# -- folders ---------------------------------------------------------------------------------------


class RanksCheckpoint(AssembledCheckpoint):
    """A folder in which each rank wrote a file of its own. DTensors and ShardedTensors in them say
    how their parts are put together; for other tensors, rules do.

    Args:
        path: The folder.
        at: The part to read; None for the model.
        join: The rules, as :class:`Joins` takes them; None for no rules.
    """

    format = "ranks"

    def __init__(self, path: str, at: str | None = None, join: Any = None) -> None:
        joins = None if join is None else Joins(join)
        super().__init__(path)
        with closed_on_error(self):
            found = {label: self._merged(files, joins) for label, files in files_of(path).items()}
            if not found:
                raise CheckpointError("no file of torch is in the folders of the ranks", path)
            self._object = next(iter(found.values())) if len(found) == 1 else found
            self.foreign = int(holds_stand_in(self._object))  # those that were not put together
            self._enter(at)

    def _merged(self, files: dict[int, str], joins: Joins | None) -> Any:
        ranks = sorted(files)
        paths = [files[rank] for rank in ranks]
        values = []
        for file in paths:
            contents = self._files_of_torch.contents(file, keep=True)
            values.append(self._files_of_torch.bound(contents, file))
        work = Merging(self.path, ranks, joins)
        merged = work.merged(values, "", 0)
        if not work.has_placements and joins is None and work.has_tensors:
            raise CheckpointError(
                f"it has files of {len(paths)} ranks, whose tensors do not say how they are put "
                f"together: {HOW_TO_JOIN}, or open one of the files",
                self.path,
            )
        self._broken += work.unclear
        return merged
