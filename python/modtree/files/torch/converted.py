# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint as files that ``torch.load`` reads, written tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from modtree.files.checkpoint.base import Checkpoint, View, array_view, completed
from modtree.files.checkpoint.dtypes import known_dtype
from modtree.files.checkpoint.record import Record
from modtree.files.checkpoint.save import Contents
from modtree.files.torch.records import Layout, TensorRecord, record_of_source
from modtree.files.torch.sources import Source
from modtree.files.torch.writer import prepared

_Pieces = Callable[[str, str], Iterator[memoryview]]


class TorchContents(Contents):
    """Entries of a checkpoint for files that ``torch.load`` reads.

    Args:
        checkpoint: What is written.
        keys: The key in the checkpoint of each new one.
        record: What there is besides.
        types: The dtype of each new key.
        pieces: Gives the bytes of an entry, by its key in the checkpoint, in a dtype.
        metadata: Of the checkpoint.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        keys: Mapping[str, str],
        record: Record,
        types: Mapping[str, str],
        pieces: _Pieces,
        metadata: Mapping[str, str],
    ) -> None:
        entries = {key: checkpoint.entries[old] for key, old in keys.items()}
        dtypes = {key: known_dtype(name) for key, name in types.items()}
        self.sizes = {
            key: int(np.prod(entry.shape, dtype=object)) * dtypes[key].itemsize
            for key, entry in entries.items()
        }
        self.metadata = metadata
        self._checkpoint = checkpoint
        self._keys = keys
        self._record = record
        self._types = types
        self._pieces = pieces
        self._overlapping = _overlapping((old, checkpoint.leaf(old)) for old in keys.values())

    def write(
        self,
        file: IO[bytes],
        path: str,
        keys: Sequence[str],
        metadata: Mapping[str, str],
        advance: Callable[[int], None],
    ) -> None:
        leaves = {key: self._leaf(key, advance) for key in keys}
        prepared(completed(leaves, self._part(keys), _view_of)).write(file)
        self._checkpoint.let_go()

    def _leaf(self, key: str, advance: Callable[[int], None]) -> TensorRecord:
        """The record of a tensor whose values are read when they are written."""
        old, name = self._keys[key], self._types[key]
        entry, known = self._checkpoint.entries[old], self._checkpoint.leaf(old)
        if known is not None and known.source is None:
            return known
        is_alone = known is None or (known.is_plain and old not in self._overlapping)
        if known is not None and not is_alone and name == entry.dtype:
            advance(self.sizes[key])
            return known.with_source(self._checkpoint.array(old))
        source = _Converted(lambda: self._pieces(old, name), entry.file, advance)
        if known is None:
            return record_of_source(source, known_dtype(name), entry.shape)
        made = known.with_source(source)
        made.dtype = known_dtype(name)
        return made

    def names(self, keys: Sequence[str]) -> Sequence[str]:
        part = self._part(keys)
        return (*keys, *part.ties, *part.views, *part.values)

    def _part(self, keys: Sequence[str]) -> Record:
        """What goes into the file with these tensors; values that are none go into the first."""
        whole, here = self._record, set(keys)
        is_first = not self.sizes or next(iter(self.sizes)) in here
        return Record(
            {key: kept for key, kept in whole.ties.items() if kept in here},
            {key: view for key, view in whole.views.items() if view.of in here},
            whole.values if is_first else {},
            whole.places if len(here) == len(self.sizes) else {},
            whole.versions,
        )


class _Converted(Source):
    """The values of an entry in the dtype in which they are written."""

    def __init__(
        self, read: Callable[[], Iterator[memoryview]], file: str, advance: Callable[[int], None]
    ) -> None:
        self._read, self._advance = read, advance
        self.files = (file,)

    def array(self) -> np.ndarray:
        raise NotImplementedError  # a view of the record is written, and never read

    def pieces(self, size: int) -> Iterator[memoryview]:
        for piece in self._read():
            yield piece
            self._advance(piece.nbytes)


def _view_of(record: TensorRecord, view: View) -> Any:
    """A tensor in the memory of another."""
    if isinstance(record.source, Source):
        place = Layout(view.offset, view.shape, view.strides)
        return TensorRecord(record.source, record.dtype, place, False)
    return array_view(record.source, view)


def _overlapping(records: Iterable[tuple[str, TensorRecord | None]]) -> set[str]:
    """The keys of tensors that share elements with another one, and are not views of it."""
    found: set[str] = set()
    places = sorted(
        (record.storage.key, record.place.offset, record.reach, key)
        for key, record in records
        if record is not None and record.storage is not None
    )
    last, end, holder = "", 0, ""
    for storage, offset, reach, key in places:
        if storage == last and offset < end:
            found |= {holder, key}
        if storage != last or offset + reach > end:
            last, end, holder = storage, offset + reach, key
    return found
