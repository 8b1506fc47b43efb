# SPDX-License-Identifier: BSD-3-Clause
"""The header of a GGUF file: settings by name, then for each tensor its name, shape and place."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from modtree.files.checkpoint.base import CheckpointError, shortened
from modtree.files.gguf.types import PLAIN, QUANTIZED

__all__ = ["Header", "Place", "read_header"]

_MOST_DIMENSIONS = 64  # NumPy's
_MOST_KEPT = 8  # items of an array that are shown
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
    """What was read: tensors by name, and settings as text."""

    places: dict[str, Place]
    metadata: dict[str, str]


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

    def _array(self, depth: int) -> str:
        """A list in words: vocabularies have hundreds of thousands of items."""
        kind = self.number("I")
        size = struct.calcsize(f"<{_NUMBERS[kind]}") if kind in _NUMBERS else 1
        count = self.count(size, "items")
        first = [self.value(kind, depth + 1) for _ in range(min(count, _MOST_KEPT))]
        if kind in _NUMBERS or kind == _BOOL:
            self.at += size * (count - len(first))
        else:
            for _ in range(count - len(first)):
                self.value(kind, depth + 1)
        more = f", ... ({count:,} items)" if count > len(first) else ""
        return f"[{', '.join(shortened(item, 40) for item in first)}{more}]"


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
    metadata: dict[str, str] = {}
    alignment = 32
    for _ in range(settings):
        name = reader.text()
        value = reader.value(reader.number("I"))
        if name == "general.alignment":
            if type(value) is not int or not 0 < value <= 1 << 30:
                raise reader.error(f"the header is damaged: an alignment of {shortened(value)}")
            alignment = value
        metadata[name] = value if type(value) is str else str(value)
    found: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(tensors):
        name = reader.text()
        dims = reader.number("I")
        if dims > _MOST_DIMENSIONS:
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
    return Header(places, metadata)


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
