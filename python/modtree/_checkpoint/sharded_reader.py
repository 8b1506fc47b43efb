# SPDX-License-Identifier: BSD-3-Clause
"""Reading a checkpoint of several files by its index."""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from modtree._checkpoint.base import Checkpoint, CheckpointError, Entry
from modtree._checkpoint.index import Index, read_index
from modtree._checkpoint.mapped import open_regular
from modtree._checkpoint.reader import open_shard
from modtree._checkpoint.record import Record, take_record

__all__ = ["ShardedCheckpoint", "open_shards"]

#: How often an index is read again that another process replaces while its shards are opened.
_ATTEMPTS = 20


class ShardedCheckpoint(Checkpoint):
    """The files that an index names, as one."""

    def __init__(self, path: str, index: Index, shards: dict[str, Checkpoint]) -> None:
        self.path = path
        self._shards = shards
        self._of = {
            key: shards[file]
            for key, file in index.files.items()
            if not _is_late(key, shards[file])
        }
        self.format = next((shard.format for shard in shards.values()), "safetensors")
        self.metadata = dict(index.metadata)
        record = take_record(self.metadata, self.shapes(), path)
        for shard in shards.values():
            _take_over(record, shard)
        record.give_to(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {file: shard.shapes() for file, shard in self._shards.items()}
        return {key: shapes[shard.path][key] for key, shard in self._of.items()}

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {key: shard.entries[key] for key, shard in self._of.items()}

    def tensor(self, key: str) -> Any:
        return self._of[key].tensor(key)

    def array(self, key: str) -> np.ndarray:
        return self._of[key].array(key)

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        return self._of[key].chunks(key, size)

    def state_dict(self) -> Any:
        return self.complete({key: shard.tensor(key) for key, shard in self._of.items()})

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()


def _is_late(key: str, shard: Checkpoint) -> bool:
    """Has the file no tensor of its own for a key, but knows what belongs there?"""
    return key in shard.ties or key in shard.views or key in shard.values


def _take_over(record: Record, shard: Checkpoint) -> None:
    """What a single shard knows beside its tensors. Of the places, those are not of the whole."""
    record.ties.update(shard.ties)
    record.views.update(shard.views)
    record.values.update(shard.values)
    if shard.versions is not None:
        record.versions = (record.versions or OrderedDict()) | shard.versions


def open_shards(path: str) -> ShardedCheckpoint:
    """Opens an index and the files that it names.

    Raises:
        OSError: A file cannot be opened.
        CheckpointError: A file is damaged, or the index and the files do not agree.
    """
    for _ in range(_ATTEMPTS):
        # Held open, so that no other file can have its number while the shards are opened.
        with open_regular(path) as file:
            index = read_index(path, file)
            try:
                checkpoint = _opened(path, index)
            except FileNotFoundError as error:
                if _is_still(file, path):
                    raise CheckpointError(
                        f"the index names {error.filename}, which is not there", path
                    ) from None
                continue
            except CheckpointError:
                if _is_still(file, path):
                    raise
                continue
            if _is_still(file, path):
                return checkpoint
            checkpoint.close()  # shards of two saves, perhaps
    raise CheckpointError("another process replaces the index all the time", path)


def _is_still(file: Any, path: str) -> bool:
    """Is an open file what has the name now?"""
    return os.path.samestat(os.fstat(file.fileno()), os.stat(path))


def _opened(path: str, index: Index) -> ShardedCheckpoint:
    shards: dict[str, Checkpoint] = {}
    try:
        for file in dict.fromkeys(index.files.values()):
            shards[file] = open_shard(file)
        known = {file: shard.shapes() for file, shard in shards.items()}
        for key, file in index.files.items():
            if key not in known[file] and not _is_late(key, shards[file]):
                raise CheckpointError(f"it is not in {file}, which the index names", path, key)
        return ShardedCheckpoint(path, index, shards)
    except BaseException:
        for shard in shards.values():
            shard.close()
        raise
