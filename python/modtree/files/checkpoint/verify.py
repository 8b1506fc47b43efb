# SPDX-License-Identifier: BSD-3-Clause
"""Checks that a checkpoint is whole, and that it fits a model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from modtree.core.loading import failures
from modtree.core.loading.mismatch import KnownShape, Mismatch
from modtree.core.loading.model_keys import ModelKeys
from modtree.files.checkpoint.base import Checkpoint, CheckpointError
from modtree.files.checkpoint.dtypes import BY_NAME, array_dtype, is_floating
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.checkpoint.progress import progress_bar
from modtree.files.checkpoint.reader import (
    INDEX_ENDING,
    is_index,
    locate,
    open_parts,
    open_shard,
)
from modtree.files.checkpoint.shards import is_shard_of, read_index
from modtree.files.sources.source import PathSource, Source, source_of

_CALL = 'modtree.load(path, foreign="stand-in") reads it with stand-ins'


@dataclass(frozen=True)
class Problem:
    """What is wrong with a checkpoint.

    Attributes:
        kind: One of "damaged", "missing", "unexpected", "ignored" (a load is silent about it),
            "shape", "index", "not finite", "not checked", "not read" (it is another file, or there
            is no such part, or a package is needed).
        message: What is wrong.
        file: The file, or None where it is the checkpoint as a whole.
        key: The key of the entry, or None.
    """

    kind: str
    message: str
    file: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        where = [] if self.file is None else [self.file]
        where += [] if self.key is None else [repr(self.key)]
        return ": ".join([*where, self.message])


class Problems(list[Problem]):
    """What is wrong with a checkpoint.

    Attributes:
        causes: Why its keys probably do not match those of the model, as the error of a load says.
        doubts: What does not tell which of its entries is which of the model.
        notes: What is not wrong, but good to know.
    """

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        super().__init__(problems)
        self.causes: list[str] = []
        self.doubts: list[str] = []
        self.notes: list[str] = []


def verify(
    path: Any,
    model: Any = None,
    *,
    finite: bool = False,
    at: str | None = None,
    join: Any = None,
    progress: bool | None = None,
) -> Problems:
    """See modtree.checkpoints.verify."""
    try:
        source = locate(source_of(path))
    except CheckpointError as error:  # a folder with no checkpoint, or several
        return Problems([_damage(not_damaged(error))])
    problems = Problems(_index_problems(source) if is_index(source) else ())
    try:
        checkpoint = open_parts(source_of(path), at, join)
    except CheckpointError as error:
        if error.is_of_rules:
            raise
        return problems or Problems([_damage(error)])
    with checkpoint:
        if checkpoint.part_of:
            problems.notes.append(f"it is not the whole: {checkpoint.part_of}")
        if checkpoint.passed_over:
            problems.notes.append(f"not looked at: {_listed(checkpoint.passed_over)}")
        for member in filter(is_index, map(PathSource, checkpoint.members)):
            problems += _index_problems(member)
        foreign = checkpoint.foreign
        if foreign:
            several = f"{foreign:,} classes or functions"
            names, verb = ("1 class or function", "is") if foreign == 1 else (several, "are")
            problems.notes.append(f"it names {names} that {verb} not imported: {_CALL}")
        if model is not None and not checkpoint.choices and checkpoint.left_out:
            problems.notes.append(f"not compared with the model: {_listed(checkpoint.left_out)}")
        if finite and not checkpoint.choices and checkpoint.left_out:
            problems.notes.append(f"values not looked at: {_listed(checkpoint.left_out)}")
        if checkpoint.choices and (model is not None or finite):
            names = _listed(checkpoint.choices)
            message = f"it holds several state dicts, {names}: name one with at= or --at"
            return Problems([Problem("not checked", message, checkpoint.path)])
        if checkpoint.source is not None:
            problems += [_damage(error) for error in checkpoint.source.damages()]
        damages = _damages(checkpoint, progress)
        problems += damages
        problems += _bool_problems(checkpoint, {problem.key for problem in damages})
        if model is not None:
            _model_problems(checkpoint, model, problems)
        if finite:
            problems += _infinite(checkpoint, progress)
    return problems


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))[:200]


def _damage(error: CheckpointError) -> Problem:
    kind = "damaged" if error.is_damage else "not read"
    return Problem(kind, error.reason, error.file, error.tensor)


# -- an index and its shards -----------------------------------------------------------------------


def _index_problems(source: Source) -> Iterator[Problem]:
    path = source.name
    try:
        with source.open() as opened:
            index = read_index(source, opened)
    except CheckpointError as error:
        yield _damage(error)
        return
    keys: dict[str, list[str]] = {file: [] for file in index.files.values()}
    for key, file in index.files.items():
        keys[file].append(key)
    total = 0
    for file, expected in keys.items():
        try:
            shard = open_shard(index.sources[file])
        except FileNotFoundError:
            keys_of = f"{len(expected)} {'key' if len(expected) == 1 else 'keys'} of the index"
            yield Problem("missing", f"the file is not there, for {keys_of}", file)
            total = -1
        except CheckpointError as error:
            yield _damage(error)
            total = -1
        else:
            with shard:
                yield from _disagreements(shard, expected, index.files)
                total += sum(e.nbytes for e in shard.entries.values()) if total >= 0 else 0
    noted = index.metadata.get("total_size")
    if noted is not None and total >= 0 and noted != str(total):
        yield Problem("index", f"its total_size is {noted}, the shards have {total} bytes", path)
    if isinstance(source, PathSource):
        yield from _strays(path, {os.path.basename(file) for file in keys})


def _disagreements(
    shard: Checkpoint, expected: list[str], files: Mapping[str, str]
) -> Iterator[Problem]:
    held = set(shard.keys())
    for key in expected:
        if key not in held:
            yield Problem("missing", "the index says it is in this file", shard.path, key)
    for key in held.difference(expected):
        other = files.get(key)
        says = f"says it is in {other}" if other else "does not name it"
        yield Problem("index", f"it is in this file, and the index {says}", shard.path, key)


def _strays(path: str, known: set[str]) -> Iterator[Problem]:
    folder = os.path.dirname(path)
    for name in sorted(os.listdir(folder or ".")):
        if name not in known and is_shard_of(name, path.removesuffix(INDEX_ENDING)):
            where = os.path.join(folder, name)
            yield Problem("index", "a shard that the index does not name", where)


# -- values ----------------------------------------------------------------------------------------


def _damages(checkpoint: Checkpoint, progress: bool | None) -> list[Problem]:
    """What a load would find: formats with checksums are read whole."""
    if not checkpoint.is_read_to_verify:
        return []
    total = sum(entry.nbytes for entry in checkpoint.entries.values())
    with progress_bar(total, "Comparing checksums", progress) as advance:
        return [_damage(error) for error in checkpoint.damages(advance)]


def _bool_problems(checkpoint: Checkpoint, damaged: set[str | None]) -> Iterator[Problem]:
    for key, entry in checkpoint.entries.items():
        if entry.dtype == "bool" and key not in damaged:
            try:
                checkpoint.array(key)
            except CheckpointError as error:
                yield _damage(error)


def _infinite(checkpoint: Checkpoint, progress: bool | None) -> Iterator[Problem]:
    chosen = [entry for entry in checkpoint.entries.values() if _may_be_infinite(entry.dtype)]
    total = sum(entry.nbytes for entry in chosen)
    with progress_bar(total, "Reading values", progress) as advance:
        for entry in chosen:
            try:
                dtype = array_dtype(entry.dtype)
            except TypeError as error:
                yield Problem("not checked", str(error), entry.file, entry.key)
                continue
            nan = infinite = 0
            for chunk in checkpoint.chunks(entry.key):
                values = np.frombuffer(chunk, dtype)
                nan += np.count_nonzero(np.isnan(values))
                infinite += np.count_nonzero(np.isinf(values))
                advance(len(chunk))
            if nan or infinite:
                text = f"{_are(nan)} NaN, {infinite} {'is' if infinite == 1 else 'are'} infinite"
                yield Problem("not finite", text, entry.file, entry.key)


def _are(count: int) -> str:
    return "1 value is" if count == 1 else f"{count} values are"


def _may_be_infinite(name: str) -> bool:
    is_packed = name in BY_NAME and BY_NAME[name].bits < 8
    return not is_packed and (is_floating(name) or name.startswith("complex"))


# -- a model ---------------------------------------------------------------------------------------


def _model_problems(checkpoint: Checkpoint, model: Any, found: Problems) -> None:
    is_model = callable(getattr(model, "state_dict", None))
    state = model.state_dict() if is_model else model
    keys = ModelKeys(model if is_model else None)
    shapes: dict[str, Any] = {**checkpoint.shapes()}
    shapes |= {key: shapes[kept] for key, kept in checkpoint.ties.items()}
    shapes |= {key: view.shape for key, view in checkpoint.views.items()}
    dtypes = {key: entry.dtype for key, entry in checkpoint.entries.items()}
    given = {key: KnownShape(tuple(s), dtypes.get(key, "")) for key, s in shapes.items()}
    mismatch = Mismatch([], [], {}, {**given, **checkpoint.raw_values}, _shapes_of(state))
    mismatch = mismatch._replace(tie=keys.tie_finder(mismatch.state_dict))
    for key, value in state.items():
        own = getattr(value, "shape", None)
        if key not in shapes:
            if key not in checkpoint.raw_values:
                mismatch.missing.append(key)
                found.append(Problem("missing", _lacking(key, mismatch.tie(key)), None, key))
        elif own is None:
            text = "a tensor, where the model has a value"
            found.append(Problem("unexpected", text, None, key))
        elif tuple(own) != tuple(shapes[key]):
            mismatch.shapes[key] = tuple(shapes[key]), tuple(own)
            sizes = f"{list(shapes[key])}, that of the model {list(own)}"
            found.append(Problem("shape", f"its shape is {sizes}", None, key))
    for key in (*shapes, *checkpoint.raw_values):
        if key not in state:
            if keys.none_above(key) is None:
                mismatch.unexpected.append(key)
            found.append(_superfluous(key, keys))
    if not mismatch.is_empty:
        causes = failures.tool().likely_causes(mismatch)
        found.causes += causes.likely
        found.doubts += causes.doubts


def _shapes_of(state: Mapping[str, Any]) -> dict[str, Any]:
    shapes = {key: getattr(value, "shape", None) for key, value in state.items()}
    return {key: None if shape is None else tuple(shape) for key, shape in shapes.items()}


def _lacking(key: str, tie: str | None) -> str:
    text = "the model has it, the checkpoint has not"
    return text if tie is None else f"{text}; it is the same tensor as {tie!r}, which both have"


def _superfluous(key: str, keys: ModelKeys) -> Problem:
    """What to say of a key that the state dict of the model does not have."""
    if keys.none_above(key) is not None:
        return Problem("ignored", keys.why_not(key), None, key)
    text = "the checkpoint has it, the model has not"
    if keys.has_reason(key):
        text = f"the checkpoint has it; {keys.why_not(key)}"
    return Problem("unexpected", text, None, key)
