# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files, as llama.cpp reads them: the header has settings by name, then for each tensor its
name, shape and place.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from modtree.files.checkpoint.base import Checkpoint, CheckpointError, Entry, shortened
from modtree.files.checkpoint.dtypes import MOST_DIMENSIONS
from modtree.files.checkpoint.mapped import map_file, mapped_array
from modtree.files.checkpoint.untrusted import as_text
from modtree.files.pickled.stand_in import StandIn, in_words
from modtree.files.sources.source import Source
from modtree.files.sources.stores import FileBytes

# -- types of tensors, by their numbers ------------------------------------------------------------


class PlainType(NamedTuple):
    """Numbers: torch's name of their dtype, and the bytes of each."""

    name: str
    itemsize: int


class QuantizedType(NamedTuple):
    """Blocks of numbers with a scale: how many a block has, and its bytes."""

    name: str
    block: int
    nbytes: int


PLAIN = {
    0: PlainType("float32", 4),
    1: PlainType("float16", 2),
    24: PlainType("int8", 1),
    25: PlainType("int16", 2),
    26: PlainType("int32", 4),
    27: PlainType("int64", 8),
    28: PlainType("float64", 8),
    30: PlainType("bfloat16", 2),
}
QUANTIZED = {
    number: QuantizedType(*facts)
    for number, facts in {
        2: ("Q4_0", 32, 18),
        3: ("Q4_1", 32, 20),
        6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34),
        9: ("Q8_1", 32, 40),
        10: ("Q2_K", 256, 84),
        11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144),
        13: ("Q5_K", 256, 176),
        14: ("Q6_K", 256, 210),
        15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66),
        17: ("IQ2_XS", 256, 74),
        18: ("IQ3_XXS", 256, 98),
        19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18),
        21: ("IQ3_S", 256, 110),
        22: ("IQ2_S", 256, 82),
        23: ("IQ4_XS", 256, 136),
        29: ("IQ1_M", 256, 56),
        34: ("TQ1_0", 256, 54),
        35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17),
        40: ("NVFP4", 64, 36),
        41: ("Q1_0", 128, 18),
    }.items()
}


# -- the header ------------------------------------------------------------------------------------

_DEEPEST = 8
_LARGEST = 2**63 - 1
_VERSIONS = (2, 3)
#: Forms of numbers, by their types in the file.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _TEXT, _ARRAY = 7, 8, 9


class Place(NamedTuple):
    """A tensor: its shape (outermost first), its type, and where its bytes are in the file."""

    shape: tuple[int, ...]
    type: int
    begin: int
    end: int


class Header(NamedTuple):
    """What was read: tensors by name, and settings."""

    places: dict[str, Place]
    settings: dict[str, Any]


class _Reader:
    """Reads numbers and text one after the other."""

    def __init__(self, memory: Any, path: str) -> None:
        self._memory = memory
        self._size = len(memory)
        self._path = path
        self.at = 4

    def error(self, what: str, key: str | None = None) -> CheckpointError:
        return CheckpointError(what, self._path, key)

    def number(self, form: str) -> Any:
        size = struct.calcsize(f"<{form}")
        self._check_room(size)
        (value,) = struct.unpack(f"<{form}", self._memory[self.at : self.at + size])
        self.at += size
        return value

    def check_version(self) -> None:
        version = self.number("I")
        if version not in _VERSIONS:
            raise self.error(f"GGUF of version {version}; versions 2 and 3 are known")

    def count(self, least: int, what: str) -> int:
        """How many of something come, each of which has at least so many bytes."""
        count: int = self.number("Q")
        if count * least > self._size - self.at:
            raise self.error(
                f"the file is truncated or damaged: {count} {what} are announced, and "
                f"{self._size - self.at} bytes are left"
            )
        return count

    def _check_room(self, count: int) -> None:
        if count > self._size - self.at:
            raise self.error(
                f"the file is truncated: its header goes on behind its end, at {self._size}"
            )

    def text(self) -> str:
        length = self.count(1, "bytes of text")
        data = bytes(self._memory[self.at : self.at + length])
        self.at += length
        return data.decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _BOOL:
            return bool(self.number("B"))
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY and depth < _DEEPEST:
            return self._array(depth)
        raise self.error(f"the header is damaged: a setting of type {kind}")

    def _array(self, depth: int) -> list[Any]:
        kind = self.number("I")
        size = struct.calcsize(f"<{_NUMBERS[kind]}") if kind in _NUMBERS else 1
        count = self.count(size, "items")
        if kind not in _NUMBERS:
            return [self.value(kind, depth + 1) for _ in range(count)]
        data = bytes(self._memory[self.at : self.at + size * count])
        self.at += size * count
        return list(struct.unpack(f"<{count}{_NUMBERS[kind]}", data))


def read_header(memory: Any, path: str) -> Header:
    """Reads and checks the header of a file.

    Args:
        memory: Its bytes.
        path: Its name, for errors.

    Raises:
        CheckpointError: It is damaged, or does not fit the length of the file.
    """
    reader = _Reader(memory, path)
    reader.check_version()
    tensors = reader.count(20, "tensors")
    settings = reader.count(9, "settings")
    found_settings: dict[str, Any] = {}
    alignment = 32
    for _ in range(settings):
        name = reader.text()
        value = reader.value(reader.number("I"))
        if name == "general.alignment":
            if type(value) is not int or not 0 < value <= 1 << 30:
                raise reader.error(f"the header is damaged: an alignment of {shortened(value)}")
            alignment = value
        found_settings[name] = value
    found: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(tensors):
        name = reader.text()
        dims = reader.number("I")
        if dims > MOST_DIMENSIONS:
            raise reader.error(f"its shape has {dims} dimensions", name)
        sizes = [reader.number("Q") for _ in range(dims)]
        found.append((name, tuple(reversed(sizes)), reader.number("I"), reader.number("Q")))
    start = -(-reader.at // alignment) * alignment
    places: dict[str, Place] = {}
    for name, shape, kind, offset in found:
        if name in places:
            raise reader.error("the header names it twice", name)
        places[name] = _place(shape, kind, start + offset, len(memory), path, name)
    _check_overlaps(places, path)
    return Header(places, found_settings)


def _place(shape: tuple[int, ...], kind: int, begin: int, size: int, path: str, key: str) -> Place:
    count = math.prod(shape)
    reached = math.prod(n or 1 for n in shape)
    if reached > _LARGEST // 16:
        raise CheckpointError(f"no memory holds the shape {shortened(list(shape))}", path, key)
    if kind in PLAIN:
        nbytes = count * PLAIN[kind].itemsize
    elif kind in QUANTIZED:
        block, of_block = QUANTIZED[kind].block, QUANTIZED[kind].nbytes
        if shape and shape[-1] % block:
            raise CheckpointError(
                f"its rows have {shape[-1]} elements, and {QUANTIZED[kind].name} has blocks of "
                f"{block}",
                path,
                key,
            )
        nbytes = count // block * of_block
    else:
        raise CheckpointError(f"it is of type {kind}, which is not known here", path, key)
    if begin + nbytes > size:
        raise CheckpointError(
            f"the file is truncated: the values are at {begin} to {begin + nbytes}, and the file "
            f"ends at {size}",
            path,
            key,
        )
    return Place(shape, kind, begin, begin + nbytes)


def _check_overlaps(places: dict[str, Place], path: str) -> None:
    end = 0
    for key, place in sorted(places.items(), key=lambda item: (item[1].begin, item[1].end)):
        if place.begin < end and place.end > place.begin:
            raise CheckpointError(
                f"the values at {place.begin} overlap those of another one", path, key
            )
        end = max(end, place.end)


# -- reading ---------------------------------------------------------------------------------------


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
        places, self._settings = read_header(self._map, self.path)
        self._places = {key: place for key, place in places.items() if place.type in PLAIN}
        self.values = {
            key: _quantized(place) for key, place in places.items() if place.type in QUANTIZED
        }
        self.places = {key: number for number, key in enumerate(places) if key in self.values}

    @functools.cached_property
    def metadata(self) -> dict[str, str]:  # type: ignore[override]
        return {name: as_text(value) for name, value in self._settings.items()}

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {
            key: Entry(key, shape, PLAIN[kind].name, end - begin, self.path)
            for key, (shape, kind, begin, end) in self._places.items()
        }

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {key: place.shape for key, place in self._places.items()}

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
    return in_words(f"gguf.{kind.name}", text)
