# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of several files: sizes, names, the index, and reading them as one.

The index is Hugging Face's: ``weight_map`` maps keys to names of files beside the index, and
``metadata`` has the bytes of all tensors as ``total_size``.
"""

from __future__ import annotations

import functools
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from modtree.files.checkpoint.atomic import atomic_file
from modtree.files.checkpoint.base import Checkpoint, CheckpointError, Entry
from modtree.files.checkpoint.reader import open_shard
from modtree.files.checkpoint.record import Record, take_record
from modtree.files.checkpoint.untrusted import as_text, file_beside, parsed_json, plain_name
from modtree.files.sources.source import PathSource, Source, source_of

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def as_size(size: Any) -> int:
    """A number of bytes, of an int or text such as "5GB" (5 * 10**9) or "500MiB" (500 * 2**20).

    Raises:
        ValueError: It is not a size.
        TypeError: It is neither int nor str.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f"{size!r} is not a size: expected for example '5GB' or '500MiB'")
        number, unit, binary = match.groups()
        result = int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])
    elif isinstance(size, int) and not isinstance(size, bool):
        result = size
    else:
        raise TypeError(f"a size is an int or text such as '5GB', got {type(size).__name__}")
    if result <= 0:
        raise ValueError(f"a size must be positive, got {size!r}")
    return result


def split(sizes: Iterable[tuple[str, int]], largest: int | None) -> list[list[str]]:
    """Keys in their order, in groups of up to ``largest`` bytes; a larger tensor is alone."""
    groups: list[list[str]] = [[]]
    filled = 0
    for key, size in sizes:
        if largest is not None and groups[-1] and filled + size > largest:
            groups.append([])
            filled = 0
        groups[-1].append(key)
        filled += size
    return groups


def shard_names(path: str, count: int, token: bytes = b"") -> list[str]:
    """The names of the shards of a checkpoint, as Hugging Face has them: of model.safetensors
    model-00001-of-00003.safetensors and so on; temporary ones have a token of four random bytes.
    """
    stem, ending = os.path.splitext(os.path.basename(path))
    stem += f"-{token.hex()}" if token else ""
    return [f"{stem}-{i:05}-of-{count:05}{ending}" for i in range(1, count + 1)]


def is_shard_of(name: str, path: str, only_temporary: bool = False) -> bool:
    """Whether a file of this name may be a shard of a checkpoint, named by :func:`shard_names`."""
    stem, ending = os.path.splitext(os.path.basename(path))
    rest = name[len(stem) :]
    token = "(-[0-9a-f]{8})" if only_temporary else "(-[0-9a-f]{8})?"
    pattern = rf"{token}-\d{{5,}}-of-\d{{5,}}{re.escape(ending)}"
    return name.startswith(stem) and re.fullmatch(pattern, rest) is not None


def is_named(name: str, index: str) -> bool:
    """Whether the file of an index, where there is one, names a shard."""
    try:
        with open(index, "rb") as file:
            return os.fsencode(name) in file.read()
    except OSError:
        return False


# -- the index -------------------------------------------------------------------------------------

#: A header of 100 MB has no more keys than an index of this size.
_LONGEST = 200_000_000


class Index(NamedTuple):
    """An index that was checked.

    Attributes:
        files: The path or address of the file for each key.
        metadata: The text beside them.
        sources: The files by their paths.
    """

    files: dict[str, str]
    metadata: dict[str, str]
    sources: dict[str, Source]


def read_index(source: Source, file: Any) -> Index:
    """Reads an index and checks that it names files beside itself.

    Args:
        source: Where it is.
        file: What opening that gave.

    Raises:
        CheckpointError: It is damaged, or leads out of its folder.
    """
    path = source.name
    size = file.seek(0, os.SEEK_END)
    if size > _LONGEST:
        raise CheckpointError(f"no index of shards: it has {size} bytes", path)
    file.seek(0)
    content = parsed_json(file.read(size), "index", path)
    files = content.get("weight_map")
    if type(files) is not dict:
        raise CheckpointError("no index of shards: it has no weight_map", path)
    checked: dict[Any, Source] = {}
    for key, name in files.items():
        if type(name) is not str or name not in checked:
            checked[name] = _shard(name, source, key)
    metadata = content.get("metadata")
    return Index(
        {key: checked[name].name for key, name in files.items()},
        _texts(metadata) if type(metadata) is dict else {},
        {shard.name: shard for shard in checked.values()},
    )


def _texts(metadata: dict[str, Any]) -> dict[str, str]:
    return {key: as_text(value) for key, value in metadata.items()}


def _shard(name: Any, index: Source, key: str) -> Source:
    if isinstance(index, PathSource):
        path = file_beside(name, index.name, "the index", key)
        return source_of(PathSource(path), index.large_header)
    plain = plain_name(name, index.name, "the index", key)
    shard = source_of(index.beside(plain), index.large_header)
    if shard.name == index.name:
        raise CheckpointError("the index names itself", index.name, key)
    return shard


def write_index(path: str, files: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
    """Writes an index, whole or not at all; ``files`` maps keys to names of files."""
    import json  # takes a while, and few programs need it

    content = {"metadata": dict(metadata), "weight_map": dict(files)}
    with atomic_file(path) as file:
        try:
            file.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")
        except UnicodeEncodeError as error:
            wrong = error.object[error.start]
            raise CheckpointError(
                f"keys are written as UTF-8, which has no {wrong!a}",
                path,
                next((key for key in files if wrong in key), None),
            ) from None


# -- reading ---------------------------------------------------------------------------------------

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
        self.metadata = {**_common(shards.values()), **index.metadata}
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


def _common(shards: Iterable[Checkpoint]) -> dict[str, str]:
    """The text that stands in all files."""
    first, *others = (shard.metadata.items() for shard in shards) if shards else [{}.items()]
    common = [(name, text) for name, text in first if all((name, text) in o for o in others)]
    return {name: text for name, text in common if not name.startswith("split.")}


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
    """Whether an open file is what has the name now."""
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


def open_numbered(whole: Source, sources: list[Source]) -> ShardedCheckpoint:
    """Opens shards that their names put together, without an index.

    Args:
        whole: What the file would be that they are parts of.
        sources: The shards in their order.

    Raises:
        CheckpointError: One is damaged, or two have an entry of one key.
    """
    shards: dict[str, Checkpoint] = {}
    files: dict[str, str] = {}
    try:
        for source in sources:
            source.large_header |= whole.large_header
            shard = shards[source.name] = open_shard(source)
            for key in shard.keys():
                if files.setdefault(key, source.name) != source.name:
                    raise CheckpointError(f"it is in {files[key]} as well", source.name, key)
        first = next(iter(shards.values())).metadata
        expected = first.get("split.tensors.count", str(len(files)))
        if expected != str(len(files)):
            raise CheckpointError(f"its parts have {len(files)} tensors of {expected}", whole.name)
        by_name = {source.name: source for source in sources}
        of_first = {name: text for name, text in first.items() if not name.startswith("split.")}
        return ShardedCheckpoint(whole.name, Index(files, of_first, by_name), shards)
    except BaseException:
        for shard in shards.values():
            shard.close()
        raise
