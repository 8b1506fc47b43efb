# SPDX-License-Identifier: BSD-3-Clause
"""Reading a GGUF file."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import Checkpoint, Entry, tensor_of
from modtree.files.checkpoint.mapped import map_file
from modtree.files.checkpoint.mapped_array import mapped_array
from modtree.files.gguf.header import Place, read_header
from modtree.files.gguf.types import PLAIN, QUANTIZED
from modtree.files.pickled.stand_in import StandIn
from modtree.files.sources.source import Source
from modtree.files.sources.stores import FileBytes

__all__ = ["GgufCheckpoint"]


class GgufCheckpoint(Checkpoint):
    """A GGUF file. Tensors of plain types lie in a private map of the file; where it is not on this
    machine, each is read when it is asked for. Quantized ones are values, which say their type and
    their bytes.

    Args:
        source: The file.
    """

    format = "gguf"

    def __init__(self, source: Source) -> None:
        self.path = source.name
        file = source.open()
        if source.can_be_mapped:
            with file:
                self._map: Any = map_file(file)
        else:
            self._map = FileBytes(file, self.path)
        places, self.metadata = read_header(self._map, self.path)
        self._places = {key: place for key, place in places.items() if place.type in PLAIN}
        self.values = {
            key: _quantized(place) for key, place in places.items() if place.type in QUANTIZED
        }
        self.places = {key: number for number, key in enumerate(places) if key in self.values}

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {
            key: Entry(key, shape, PLAIN[kind].name, end - begin, self.path)
            for key, (shape, kind, begin, end) in self._places.items()
        }

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {key: place.shape for key, place in self._places.items()}

    def tensor(self, key: str) -> Any:
        return tensor_of(self.array(key))

    def array(self, key: str) -> np.ndarray:
        place = self._places[key]
        name = PLAIN[place.type].name
        memory, at = self._opened(), place.begin
        if isinstance(memory, FileBytes):
            memory, at = bytearray(memory[at : place.end]), 0
        return mapped_array(memory, at, name, place.shape, self.path, key)

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        place, memory = self._places[key], self._opened()
        if not isinstance(memory, FileBytes):
            memory = memoryview(memory)
        for at in range(place.begin, place.end, size):
            yield memoryview(memory[at : min(at + size, place.end)])

    def _opened(self) -> Any:
        if self._map is None:
            raise ValueError(f"the checkpoint {self.path} is closed")
        return self._map

    def let_go(self) -> None:
        if self._map is not None:
            self._map.let_go()

    def close(self) -> None:
        self._map = None  # which is closed when the last tensor of it dies


def _quantized(place: Place) -> StandIn:
    kind = QUANTIZED[place.type]
    nbytes = place.end - place.begin
    bits = 8 * nbytes / max(1, math.prod(place.shape))
    text = f"{kind.name} tensor {list(place.shape)}, {nbytes:,} B, {bits:.4g} bits an element"
    return StandIn(f"gguf.{kind.name}", ()).described(f"gguf.{kind.name}", text, {})
