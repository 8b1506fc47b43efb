# SPDX-License-Identifier: BSD-3-Clause
"""Reading a checkpoint of several files by its index."""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import Checkpoint, CheckpointError, Entry
from modtree.files.checkpoint.index import Index, read_index
from modtree.files.checkpoint.reader import open_shard
from modtree.files.checkpoint.record import Record, take_record
from modtree.files.sources.source import PathSource, Source

__all__ = ["ShardedCheckpoint", "open_shards"]

#: How often an index is read again that another process replaces while its shards are opened.
_ATTEMPTS = 20


class ShardedCheckpoint(Checkpoint):
    """The files that an index names, as one."""

    def __init__(self, path: str, index: Index, shards: dict[str, Checkpoint]) -> None:
        self.path = path
        self._shards = shards
        besides = {file: _beside(shard, index) for file, shard in shards.items()}
        self._of = {
            key: shards[file]
            for key, file in index.files.items()
            if key not in besides[file].places
        }
        self.format = next((shard.format for shard in shards.values()), "safetensors")
        self.metadata = dict(index.metadata)
        shapes = self._checked_shapes(index)
        record = take_record(self.metadata, shapes, path)
        for part in besides.values():
            _take_over(record, part)
        self._raw_values = record.values
        self._holders = {key: shards[file] for file, part in besides.items() for key in part.values}
        record.give_to(self)
        del vars(self)["values"]  # which are made when they are asked for

    @property
    def is_read_to_verify(self) -> bool:  # type: ignore[override]
        return any(shard.is_read_to_verify for shard in self._shards.values())

    def _checked_shapes(self, index: Index) -> dict[str, tuple[int, ...]]:
        try:
            return self.shapes()
        except KeyError as error:
            key = error.args[0]
            raise CheckpointError(
                f"it is not in {index.files[key]}, which the index names", self.path, key
            ) from None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {file: shard.shapes() for file, shard in self._shards.items()}
        return {key: shapes[shard.path][key] for key, shard in self._of.items()}

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {key: shard.entries[key] for key, shard in self._of.items()}

    @property
    def raw_values(self) -> Mapping[str, Any]:
        return self._raw_values

    @functools.cached_property
    def values(self) -> Mapping[str, Any]:  # type: ignore[override]
        return self._values_by(lambda shard: shard.values)

    def plain_values(self) -> Mapping[str, Any]:
        return self._values_by(lambda shard: shard.plain_values())

    def _values_by(self, read: Callable[[Checkpoint], Mapping[str, Any]]) -> dict[str, Any]:
        of = {id(shard): read(shard) for shard in self._holders.values()}
        holders = self._holders
        return {
            key: of[id(holders[key])][key] if key in holders else value
            for key, value in self._raw_values.items()
        }

    def leaf(self, key: str) -> Any:
        return self._of[key].leaf(key)

    def tensor(self, key: str) -> Any:
        return self._of[key].tensor(key)

    def array(self, key: str) -> np.ndarray:
        return self._of[key].array(key)

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        return self._of[key].chunks(key, size)

    def state_dict(self) -> Any:
        return self.complete({key: shard.tensor(key) for key, shard in self._of.items()})

    def maps(self) -> dict[str, Any]:
        return {
            path: found for shard in self._shards.values() for path, found in shard.maps().items()
        }

    def let_go(self) -> None:
        for shard in self._shards.values():
            shard.let_go()

    def compare_checksums(self) -> None:
        for shard in self._shards.values():
            shard.compare_checksums()

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        for shard in self._shards.values():
            yield from shard.damages(advance)

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()


def _beside(shard: Checkpoint, index: Index) -> Record:
    """What a file has beside its tensors for keys that the index says are in it. Of the places,
    only their keys have a meaning: the numbers are not those of the whole checkpoint.
    """
    here = {key for key, file in index.files.items() if file == shard.path}
    tensors = here & shard.shapes().keys()
    ties = {k: of for k, of in shard.ties.items() if k in here and of in tensors}
    views = {k: view for k, view in shard.views.items() if k in here and view.of in tensors}
    values = {k: value for k, value in shard.raw_values.items() if k in here}
    places = dict.fromkeys((*ties, *views, *values), 0)
    return Record(ties, views, values, places, shard.versions)


def _take_over(record: Record, part: Record) -> None:
    record.ties.update(part.ties)
    record.views.update(part.views)
    record.values.update(part.values)
    if part.versions is not None:
        record.versions = (record.versions or OrderedDict()) | part.versions


def open_shards(source: Source) -> ShardedCheckpoint:
    """Opens an index and the files that it names.

    Raises:
        OSError: A file cannot be opened.
        CheckpointError: A file is damaged, or the index and the files do not agree.
    """
    path = source.name
    for _ in range(_ATTEMPTS):
        # Held open, so that no other file can have its number while the shards are opened.
        with source.open() as file:
            index = read_index(source, file)
            try:
                checkpoint = _opened(path, index)
            except FileNotFoundError as error:
                if _is_still(file, source):
                    raise CheckpointError(
                        f"the index names {error.filename}, which is not there", path
                    ) from None
                continue
            except CheckpointError:
                if _is_still(file, source):
                    raise
                continue
            if _is_still(file, source):
                return checkpoint
            checkpoint.close()  # shards of two saves, perhaps
    raise CheckpointError("another process replaces the index all the time", path)


def _is_still(file: Any, source: Source) -> bool:
    """Is an open file what has the name now?"""
    if not isinstance(source, PathSource):
        return True
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(source.name))
    except FileNotFoundError:
        return False


def _opened(path: str, index: Index) -> ShardedCheckpoint:
    shards: dict[str, Checkpoint] = {}
    try:
        for file, source in index.sources.items():
            shards[file] = open_shard(source)
        return ShardedCheckpoint(path, index, shards)
    except BaseException:
        for shard in shards.values():
            shard.close()
        raise
