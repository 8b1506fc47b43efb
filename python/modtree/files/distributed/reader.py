# SPDX-License-Identifier: BSD-3-Clause
"""Reading a folder of torch.distributed.checkpoint."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.distributed.metadata import (
    Item,
    Metadata,
    TensorFacts,
    metadata_path,
    read_metadata,
)
from modtree.files.distributed.nesting import nested
from modtree.files.pickled.stand_in import StandIn
from modtree.files.torch.assembled import Assembled, Piece
from modtree.files.torch.files import AssembledCheckpoint
from modtree.files.torch.records import TensorRecord, record_of_source

__all__ = ["DistributedCheckpoint"]


class DistributedCheckpoint(AssembledCheckpoint):
    """A folder that torch.distributed.checkpoint.save() wrote: its tensors are global ones, whose
    chunks are read from the files of all ranks.

    Args:
        path: The folder, or its ``.metadata``.
        at: The part to read; None for the model.
    """

    format = "distributed"

    def __init__(self, path: str, at: str | None = None) -> None:
        file = metadata_path(path)
        super().__init__(os.path.dirname(file) or "." if file == path else path)
        try:
            contents = self._files_of_torch.contents(file)
            metadata = read_metadata(file, contents)
            self.foreign = 0
            parts = {
                metadata.places.get(key, (key,)): self._entry(key, facts, metadata, file)
                for key, facts in metadata.entries.items()
            }
            self._object = nested(parts, file)
            self._enter(at)
        except BaseException:
            self.close()
            raise

    def _entry(self, key: str, facts: TensorFacts | None, metadata: Metadata, file: str) -> Any:
        if facts is None:
            item = metadata.items.get((key, None))
            if item is None:
                raise CheckpointError("the .metadata does not say where it is", file, key)
            return self._value(item, key)
        if facts.dtype is None:
            kind = StandIn("torch.Tensor", ())
            return kind.described(
                "torch.Tensor", f"tensor of a dtype that is not known here {list(facts.shape)}", {}
            )
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
