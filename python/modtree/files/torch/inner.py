# SPDX-License-Identifier: BSD-3-Clause
"""A checkpoint as a part of another one: its state dict with records in the place of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from modtree import _C
from modtree.files.checkpoint.base import Checkpoint, CheckpointError, View, array_view, completed
from modtree.files.pickled.stand_in import StandIn
from modtree.files.torch.records import TensorRecord, record_of_source
from modtree.files.torch.sources import LateSource, Source

__all__ = ["state_of"]


class _Entry(Source):
    """An entry of a checkpoint, which itself says what is wrong with it."""

    def __init__(self, checkpoint: Checkpoint, key: str) -> None:
        self._checkpoint, self._key = checkpoint, key
        entry = checkpoint.entries[key]
        self.files = entry.files or (entry.file,)

    def array(self) -> np.ndarray:
        return self._checkpoint.array(self._key)

    def part(self, index: Any) -> np.ndarray:
        return self._checkpoint.part(self._key, index)

    def pieces(self, size: int) -> Iterator[memoryview]:
        return self._checkpoint.chunks(self._key, size)

    def check(self) -> Iterator[CheckpointError]:
        return iter(())


def state_of(checkpoint: Checkpoint) -> Any:
    """The state dict of an open checkpoint, which stays open as long as values are read."""
    records: dict[str, Any] = {}
    for key, entry in checkpoint.entries.items():
        dtype = _C._dtypes.get(entry.dtype) or _C._stored_dtypes.get(entry.dtype)
        if dtype is None:
            text = f"tensor of {entry.dtype} {list(entry.shape)}"
            records[key] = StandIn("torch.Tensor", ()).described("torch.Tensor", text, {})
        else:
            records[key] = record_of_source(_Entry(checkpoint, key), dtype, entry.shape)

    def view_of(record: Any, view: View) -> Any:
        if type(record) is not TensorRecord:
            return record
        source = record.source
        late = LateSource(lambda: array_view(source.array(), view), source.files[0])
        return record_of_source(late, record.dtype, view.shape)

    return completed(records, _Raw(checkpoint), view_of)


class _Raw:
    """What a checkpoint has beside its tensors, with records in values."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.ties, self.views, self.places = checkpoint.ties, checkpoint.views, checkpoint.places
        self.values, self.versions = checkpoint.plain_values(), checkpoint.versions
