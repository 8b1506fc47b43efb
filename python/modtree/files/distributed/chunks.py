# SPDX-License-Identifier: BSD-3-Clause
"""Folders of torch.distributed.checkpoint.

Their ``.metadata`` is a pickle, which is read through stand-ins. It has the global shape of each
tensor and the boxes that it was split into, and for each box the file and the bytes where it is. A
box is a file of ``torch.save`` within that file. Values that are not tensors have no boxes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from modtree import _C
from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    closed_on_error,
    shortened,
)
from modtree.files.checkpoint.dtypes import MOST_DIMENSIONS, known_dtype
from modtree.files.checkpoint.reader import is_of_ranks, open_shard
from modtree.files.checkpoint.untrusted import file_beside, parsed_json
from modtree.files.pickled.stand_in import StandIn, in_words
from modtree.files.sources.source import PathSource
from modtree.files.torch.files import AssembledCheckpoint
from modtree.files.torch.load import Contents
from modtree.files.torch.records import TensorRecord, record_of_source
from modtree.files.torch.sources import Assembled, Piece

# -- the metadata ----------------------------------------------------------------------------------

_MODULE = "torch.distributed.checkpoint.metadata."
_LARGEST = 2**63 - 1


class Item(NamedTuple):
    """Where a box or a value is."""

    file: str
    offset: int
    length: int


class TensorFacts(NamedTuple):
    """A tensor: its shape, its dtype (None for one that is not known), and its boxes, for each
    where it begins and its sizes.
    """

    shape: tuple[int, ...]
    dtype: Any
    boxes: list[tuple[tuple[int, ...], tuple[int, ...]]]


class Metadata(NamedTuple):
    """What a folder holds.

    Attributes:
        entries: By their names: the facts of tensors, None for other values.
        items: Where everything is: by name, and beginning of a box (None for other values).
        places: Where in the object the entries are: keys and numbers on the way.
    """

    entries: dict[str, TensorFacts | None]
    items: dict[tuple[str, tuple[int, ...] | None], Item]
    places: dict[str, tuple[Any, ...]]


class _Reader:
    def __init__(self, path: str) -> None:
        self._path = path
        self._files: dict[str, str] = {}

    def error(self, what: str, key: str | None = None) -> CheckpointError:
        return CheckpointError(f"the .metadata is damaged: {what}", self._path, key)

    def fields(self, value: Any, kind: str, what: str) -> dict[Any, Any]:
        """The attributes of an object of this class."""
        if type(value) is not StandIn or not value.is_called:
            raise self.error(f"{shortened(value)} where {what} belongs")
        if value.kind.rpartition(".")[2] != kind:
            raise self.error(f"a {value.kind:.100} where {what} belongs")
        return value.attributes

    def numbers(self, value: Any, what: str) -> tuple[int, ...]:
        fits = isinstance(value, (tuple, list)) and len(value) <= MOST_DIMENSIONS
        if not fits or not all(type(n) is int and 0 <= n <= _LARGEST for n in value):
            raise self.error(f"{what} is {shortened(value)}")
        return tuple(value)

    def file(self, name: Any) -> str:
        if type(name) is not str or name not in self._files:
            found = file_beside(name, self._path, "the .metadata")
            self._files[name] = found
        return self._files[name]

    def tensor(self, key: str, value: StandIn) -> TensorFacts:
        fields = value.attributes
        shape = self.numbers(fields.get("size"), f"the size of {shortened(key)}")
        reached = 1
        for n in shape:
            reached *= max(n, 1)
        if reached > _LARGEST // 16:
            raise self.error(f"no memory holds the shape {shortened(list(shape))}", key)
        properties = fields.get("properties")
        state = properties.state if type(properties) is StandIn else None
        dtype = state.get("dtype") if isinstance(state, dict) else None
        if type(state) is tuple and state:
            dtype = state[0]
        chunks = fields.get("chunks")
        if type(chunks) is not list:
            raise self.error("the chunks of a tensor are missing", key)
        boxes = []
        for chunk in chunks:
            parts = self.fields(chunk, "ChunkStorageMetadata", "a chunk")
            offsets = self.numbers(parts.get("offsets"), "the place of a chunk")
            boxes.append((offsets, self.numbers(parts.get("sizes"), "the shape of a chunk")))
        return TensorFacts(shape, dtype if type(dtype) is _C.dtype else None, boxes)

    def entries(self, value: Any) -> Iterator[tuple[str, TensorFacts | None]]:
        if not isinstance(value, dict):
            raise self.error("it does not say which tensors there are")
        for key, entry in value.items():
            if type(key) is not str:
                raise self.error(f"the key {shortened(key)} is not text")
            kind = entry.kind if type(entry) is StandIn else type(entry).__name__
            if kind == f"{_MODULE}TensorStorageMetadata":
                yield key, self.tensor(key, entry)
            elif kind == f"{_MODULE}BytesStorageMetadata":
                yield key, None
            else:
                raise self.error(f"a {kind:.100} where a tensor or a value belongs", key)

    def items(self, value: Any) -> Iterator[tuple[tuple[str, tuple[int, ...] | None], Item]]:
        if not isinstance(value, dict):
            raise CheckpointError(
                "it does not say in which files the tensors are: another storage wrote it than "
                "torch's FileSystemWriter",
                self._path,
            )
        for index, info in value.items():
            at = self.fields(index, "MetadataIndex", "a name")
            where = self.fields(info, "_StorageInfo", "the place of a chunk")
            key, offset = at.get("fqn"), at.get("offset")
            if type(key) is not str:
                raise self.error(f"the key {shortened(key)} is not text")
            begin = None if offset is None else self.numbers(offset, "the place of a chunk")
            start, length = where.get("offset"), where.get("length")
            if type(start) is not int or type(length) is not int or min(start, length) < 0:
                raise self.error(f"bytes {shortened(start)} and {shortened(length)}", key)
            if where.get("transform_descriptors"):
                kinds = shortened(where["transform_descriptors"])
                raise CheckpointError(
                    f"its bytes were transformed by {kinds}: load it with torch and save it "
                    f"without extensions",
                    self._path,
                    key,
                )
            yield (key, begin), Item(self.file(where.get("relative_path")), start, length)

    def places(self, value: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Planners of users may keep anything there: what does not fit is passed over."""
        for key, place in value.items() if isinstance(value, dict) else ():
            if type(place) is tuple and place and all(type(p) in (str, int) for p in place):
                yield key, place


def read_metadata(path: str, contents: Contents) -> Metadata:
    """Checks what the file holds.

    Args:
        path: The ``.metadata`` file.
        contents: What was read from it.

    Raises:
        CheckpointError: It is damaged, or names a file outside of the folder.
    """
    reader = _Reader(path)
    fields = reader.fields(contents.obj, "Metadata", "the Metadata of a folder")
    return Metadata(
        dict(reader.entries(fields.get("state_dict_metadata"))),
        dict(reader.items(fields.get("storage_data"))),
        dict(reader.places(fields.get("planner_data"))),
    )


# -- the object of which somebody wrote each part under a path -------------------------------------

_DEEPEST = 64


class _Items(dict[Any, Any]):
    """A container that is being made."""


def nested(parts: dict[tuple[Any, ...], Any], path: str) -> dict[Any, Any]:
    """Dicts in dicts, and lists where all keys of a container are numbers from 0 on.

    Args:
        parts: What is at the end of each path of keys and numbers.
        path: Of the file, for errors.

    Raises:
        CheckpointError: Something is to be a container and a value at once.
    """
    root = _Items()
    for place, value in parts.items():
        if len(place) > _DEEPEST:
            raise CheckpointError("containers are nested too deeply", path)
        holder: Any = root
        for key in place[:-1]:
            holder = holder.setdefault(key, _Items())
            if type(holder) is not _Items:
                break
        if type(holder) is not _Items or place[-1] in holder:
            text = ".".join(map(str, place))
            raise CheckpointError(f"two values are at the place {shortened(text)}", path)
        holder[place[-1]] = value
    made = _finished(root)
    return made if isinstance(made, dict) else dict(enumerate(made))


def _finished(value: Any) -> Any:
    if type(value) is not _Items:
        return value
    if value and all(type(key) is int for key in value):
        if value.keys() == set(range(len(value))):
            return [_finished(value[number]) for number in range(len(value))]
    return {key: _finished(item) for key, item in value.items()}


# -- folders ---------------------------------------------------------------------------------------


class DistributedCheckpoint(AssembledCheckpoint):
    """A folder that torch.distributed.checkpoint.save() wrote: its tensors are global ones, whose
    chunks are read from the files of all ranks.

    Args:
        path: The folder, or its ``.metadata``.
        at: The part to read; None for the model.
    """

    format = "distributed"

    def __init__(self, path: str, at: str | None = None) -> None:
        is_file = os.path.basename(path) == ".metadata"
        file = path if is_file else os.path.join(path, ".metadata")
        super().__init__(os.path.dirname(path) or "." if is_file else path)
        with closed_on_error(self):
            contents = self._files_of_torch.contents(file)
            metadata = read_metadata(file, contents)
            parts = {
                metadata.places.get(key, (key,)): self._entry(key, facts, metadata, file)
                for key, facts in metadata.entries.items()
            }
            self._object = nested(parts, file)
            self._enter(at)

    def _entry(self, key: str, facts: TensorFacts | None, metadata: Metadata, file: str) -> Any:
        if facts is None:
            item = metadata.items.get((key, None))
            if item is None:
                raise CheckpointError("the .metadata does not say where it is", file, key)
            return self._value(item, key)
        if facts.dtype is None:
            text = f"tensor of a dtype that is not known here {list(facts.shape)}"
            return in_words("torch.Tensor", text)
        pieces = []
        for offsets, sizes in facts.boxes:
            item = metadata.items.get((key, offsets))
            if item is not None:
                pieces.append(Piece(offsets, sizes, self._reader(item, key), item.file))
        source = Assembled(facts.shape, facts.dtype.name, pieces, file, key)
        return record_of_source(source, facts.dtype, facts.shape)

    def _reader(self, item: Item, key: str) -> Any:
        def read() -> np.ndarray:
            contents = self._files_of_torch.contents(*item)
            if type(contents.obj) is not TensorRecord:
                raise CheckpointError("a chunk of it is not a tensor", item.file, key)
            return self._files_of_torch.array(contents, contents.obj, item.file)

        return read

    def _value(self, item: Item, key: str) -> Any:
        try:
            contents = self._files_of_torch.contents(*item, keep=True)
        except CheckpointError as error:
            raise CheckpointError(error.reason, error.file, key) from None
        self.foreign += contents.foreign
        return self._files_of_torch.bound(contents, item.file)


# -- safetensors files of ranks --------------------------------------------------------------------

_OFFSETS = "DCP_SHARDING_INFO"


class OffsetsCheckpoint(AssembledCheckpoint):
    """A folder of safetensors files with parts of tensors, whose metadata says where these belong,
    as torch.distributed.checkpoint writes for each rank.

    Args:
        path: The folder.
        at: The part to read; None for the model.
    """

    format = "ranks"

    def __init__(self, path: str, at: str | None = None) -> None:
        super().__init__(path)
        self._inner: list[Checkpoint] = []
        self._pieces: dict[str, list[Piece]] = {}
        self._dtypes: dict[str, str] = {}
        with closed_on_error(self):
            for name in sorted(filter(is_of_ranks, os.listdir(path))):
                self._add(os.path.join(path, name))
            self._object = {key: self._record(key, pieces) for key, pieces in self._pieces.items()}
            self._enter(at)

    def _add(self, file: str) -> None:
        """Takes up the parts in a file."""
        checkpoint = open_shard(PathSource(file))
        self._inner.append(checkpoint)
        text = checkpoint.metadata.get(_OFFSETS)
        places = {} if text is None else parsed_json(text.encode(), "metadata", file)
        for key, entry in checkpoint.entries.items():
            place = places.get(key)
            begin = _offsets(place, len(entry.shape))
            if begin is None:
                raise CheckpointError(f"its place is {shortened(place)}", file, key)
            read = functools.partial(checkpoint.array, key)
            piece = Piece(begin, entry.shape, read, file)
            if self._dtypes.setdefault(key, entry.dtype) != entry.dtype:
                raise CheckpointError("ranks have different dtypes of it", file, key)
            self._pieces.setdefault(key, []).append(piece)

    def _record(self, key: str, pieces: list[Piece]) -> TensorRecord:
        ends = [[a + n for a, n in zip(p.offsets, p.sizes, strict=True)] for p in pieces]
        if len({len(end) for end in ends}) > 1:
            raise CheckpointError("ranks have parts of different dimensions", self.path, key)
        shape = tuple(map(max, zip(*ends, strict=True)))
        different = list({(piece.offsets, piece.sizes): piece for piece in pieces}.values())
        source = Assembled(shape, self._dtypes[key], different, self.path, key)
        return record_of_source(source, known_dtype(self._dtypes[key]), shape)

    def close(self) -> None:
        super().close()
        for checkpoint in self._inner:
            checkpoint.close()


def _offsets(place: Any, dims: int) -> tuple[int, ...] | None:
    """Where a part begins, as the metadata of a file says it; None of what does not."""
    if place is None:
        return (0,) * dims
    found = place.get("saved_offsets") if isinstance(place, dict) else None
    if not isinstance(found, list) or len(found) != dims:
        return None
    fits = all(type(n) is int and 0 <= n < _LARGEST for n in found)
    return tuple(found) if fits else None
