# SPDX-License-Identifier: BSD-3-Clause
"""Reading a safetensors file."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import Checkpoint, CheckpointError, Entry, tensor_of
from modtree.files.checkpoint.mapped import FileMap, map_file
from modtree.files.checkpoint.mapped_array import mapped_array
from modtree.files.checkpoint.record import take_record
from modtree.files.safetensors.header import Place, read_header
from modtree.files.sources.source import Source

__all__ = ["SafetensorsCheckpoint"]


class SafetensorsCheckpoint(Checkpoint):
    """A safetensors file. Its tensors lie in a private map of the file; where it is not on this
    machine, each is read when it is asked for.
    """

    format = "safetensors"

    def __init__(self, source: Source) -> None:
        self.path = path = source.name
        self._file: Any = source.open()
        self._is_mapped = source.can_be_mapped
        self._map: FileMap | None = None
        self._lock = threading.Lock()
        try:
            self._places: dict[str, Place]
            self._places, metadata, self._start = read_header(self._file, path, source.large_header)
            # Most files say nothing that shapes are needed for, and some have a million.
            shapes = self.shapes() if metadata.keys() - {"format"} else {}
            take_record(metadata, shapes, path).give_to(self)
        except BaseException:
            self._file.close()
            raise
        self.metadata = metadata

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        path = self.path
        new = tuple.__new__  # what Entry() comes to, without the call of a Python function
        return {
            key: new(Entry, (key, shape, dtype.name, end - begin, path, ()))
            for key, (dtype, shape, begin, end) in self._places.items()
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {key: place.shape for key, place in self._places.items()}

    def tensor(self, key: str) -> Any:
        return tensor_of(self.array(key))

    def array(self, key: str) -> np.ndarray:
        place = self._places[key]
        at = self._start + place.begin
        memory: Any = None
        if place.begin != place.end:
            memory, at = (self._mapped(), at) if self._is_mapped else (self._read(key), 0)
        return mapped_array(memory, at, place.dtype.name, place.shape, self.path, key)

    def _read(self, key: str) -> np.ndarray:
        place = self._places[key]
        data = np.empty(place.end - place.begin, np.uint8)
        at = 0
        for chunk in self.chunks(key):
            data[at : at + len(chunk)] = chunk
            at += len(chunk)
        return data

    def _mapped(self) -> FileMap:
        with self._lock:
            if self._map is None:
                if self._file.closed:
                    raise ValueError(f"the checkpoint {self.path} is closed")
                try:
                    self._map = map_file(self._file)
                except (OSError, ValueError) as error:
                    raise CheckpointError(f"cannot be mapped: {error}", self.path) from None
            return self._map

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        # Read instead of mapped: what is streamed may be larger than the address space allows.
        place = self._places[key]
        at, end = self._start + place.begin, self._start + place.end
        buffer = memoryview(bytearray(min(size, end - at)))
        while at < end:
            with self._lock:
                self._file.seek(at)
                count = self._file.readinto(buffer[: end - at])
            if not count:
                raise CheckpointError("the file is truncated", self.path, key)
            yield buffer[:count]
            at += count

    def state_dict(self) -> Any:
        return self.complete({key: self.tensor(key) for key in self._places})

    def maps(self) -> dict[str, FileMap]:
        return {} if self._map is None else {self.path: self._map}

    def let_go(self) -> None:
        if self._map is not None:
            self._map.let_go()

    def close(self) -> None:
        self._file.close()
        self._map = None  # and closed when the last tensor of it dies
