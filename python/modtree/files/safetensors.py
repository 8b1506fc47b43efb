# SPDX-License-Identifier: BSD-3-Clause
"""Files of the safetensors format: eight bytes with the length of the header, the header, the
values.

The header is JSON, which maps each key to dtype, shape and the place of the values behind it, and
``__metadata__`` to text. The values fill the rest of the file without holes.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    Entry,
    closed_on_error,
    shortened,
    without_collections,
)
from modtree.files.checkpoint.dtypes import BY_CODE, MOST_DIMENSIONS, FileDtype
from modtree.files.checkpoint.mapped import FileMap, map_file, mapped_array
from modtree.files.checkpoint.other_files import what_damaged_it
from modtree.files.checkpoint.record import take_record
from modtree.files.checkpoint.untrusted import parsed_json
from modtree.files.sources.source import Source

# -- the header ------------------------------------------------------------------------------------

#: What the library refuses to read.
LONGEST_HEADER = 100_000_000
#: What is read where a caller wants more.
LONGEST_WANTED = 10 * LONGEST_HEADER
_METADATA = "__metadata__"
#: Bytes of values that show what a transfer did to a file.
_SAMPLE = 1 << 14
_LARGEST = 2**63 - 1


class Place(NamedTuple):
    """An entry of the header; ``begin`` and ``end`` count from the end of the header."""

    dtype: FileDtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """A header that was checked; ``start`` is where the values begin in the file."""

    places: dict[str, Place]
    metadata: dict[str, str]
    start: int


def read_header(file: Any, path: str, large: bool = False) -> Header:
    """Reads and checks the header of an open file.

    Args:
        file: The file.
        path: Its path, for errors.
        large: Whether to read a header that is longer than usual.

    Raises:
        CheckpointError: It is damaged, or does not fit the length of the file.
    """
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8:
        raise CheckpointError(
            f"the file is truncated: it has {size} bytes, a safetensors file begins with the "
            f"length of its header, in 8",
            path,
        )
    if length > (LONGEST_WANTED if large else LONGEST_HEADER):
        advice = "; large_header=True (--large-header) reads it" if length <= size - 8 else ""
        raise CheckpointError(
            f"no safetensors file, or a damaged one: its first 8 bytes name a header of {length} "
            f"bytes, and headers have up to {LONGEST_HEADER}{'' if large else advice}",
            path,
        )
    if length > size - 8:
        raise CheckpointError(
            f"the file is truncated: it has {size} bytes, its header alone is to have {length}",
            path,
        )
    with without_collections():
        content = parsed_json(file.read(length), "header", path)
        metadata = _checked_metadata(content.pop(_METADATA, None), path)
        kinds: _Kinds = {}
        places = {key: _place(key, value, path, kinds) for key, value in content.items()}
    left = _check_coverage(places, size - 8 - length, path)
    if left:
        changed = what_damaged_it(file.read(_SAMPLE))
        wrong = f"the file has {left} bytes behind the last tensor, which nothing describes"
        raise CheckpointError(f"the file is damaged: {changed}" if changed else wrong, path)
    return Header(places, metadata, 8 + length)


def _checked_metadata(value: Any, path: str) -> dict[str, str]:
    if value is None:
        return {}
    if type(value) is not dict or not all(type(text) is str for text in value.values()):
        raise CheckpointError("the header is damaged: __metadata__ is to map text to text", path)
    return value


#: dtype and shape by what the header says of them, where they were checked, and the bits.
_Kinds = dict[tuple[Any, ...], tuple[FileDtype, tuple[int, ...], int]]


def _place(key: str, value: Any, path: str, kinds: _Kinds) -> Place:
    try:
        code, shape, (begin, end) = value["dtype"], value["shape"], value["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(
            "the header is damaged: expected dtype, shape and two data_offsets, got "
            f"{shortened(value)}",
            path,
            key,
        ) from None
    if type(code) is not str:
        raise CheckpointError(f"unknown dtype {shortened(code)}", path, key)
    if type(shape) is not list or type(begin) is not int or type(end) is not int:
        raise CheckpointError(
            f"the header is damaged: shape {shortened(shape)}, data_offsets "
            f"{shortened([begin, end])}",
            path,
            key,
        )
    for size in shape:
        if type(size) is not int or size < 0:
            raise CheckpointError(f"the shape {shortened(shape)} is none", path, key)
    kind = (code, *shape)
    known = kinds.get(kind)
    if known is None:
        known = kinds[kind] = _checked_kind(code, shape, path, key)
    dtype, sizes, bits = known
    if not 0 <= begin <= end <= _LARGEST or (end - begin) * 8 != bits:
        raise CheckpointError(
            f"its data_offsets {shortened([begin, end])} do not fit: shape {shortened(shape)} of "
            f"{dtype.name} takes {shortened(-(-bits // 8))} bytes",
            path,
            key,
        )
    return tuple.__new__(Place, (dtype, sizes, begin, end))  # in half the time of Place()


def _checked_kind(
    code: str, shape: list[int], path: str, key: str
) -> tuple[FileDtype, tuple[int, ...], int]:
    dtype = BY_CODE.get(code)
    if dtype is None:
        raise CheckpointError(f"unknown dtype {shortened(code)}", path, key)
    if len(shape) > MOST_DIMENSIONS:
        raise CheckpointError(
            f"its shape has {len(shape)} dimensions, and arrays have up to {MOST_DIMENSIONS}",
            path,
            key,
        )
    bits = math.prod(shape) * dtype.bits
    if (bits or math.prod([size or 1 for size in shape]) * dtype.bits) > _LARGEST:
        raise CheckpointError(f"no memory holds the shape {shortened(shape)}", path, key)
    return dtype, tuple(shape), bits


def _check_coverage(places: dict[str, Place], size: int, path: str) -> int:
    """How many bytes are behind the last tensor."""
    at = 0
    for _, _, begin, end in places.values():  # most files have them in their order
        if begin != at:
            break
        at = end
    else:
        if at <= size:
            return size - at
    at = 0
    for key, place in sorted(places.items(), key=lambda item: (item[1].begin, item[1].end)):
        if place.begin != at:
            wrong = "overlap those of another one" if place.begin < at else "leave a hole"
            raise CheckpointError(
                f"the values at {place.begin} to {place.end} {wrong}: expected them to begin at "
                f"{at}",
                path,
                key,
            )
        if place.end > size:
            raise CheckpointError(
                f"the file is truncated: the values stand at {place.begin} to {place.end}, and "
                f"the file ends at {size}",
                path,
                key,
            )
        at = place.end
    return size - at


def header_bytes(
    tensors: Mapping[str, tuple[FileDtype, tuple[int, ...]]],
    begins: Mapping[str, int],
    metadata: Mapping[str, str],
    path: str,
) -> bytes:
    """The length and the JSON, filled up with spaces so that values begin at a multiple of 8.

    Args:
        tensors: dtype and shape by key, in the order that the header gets.
        begins: Where the values of each begin.
        metadata: The text beside them.
        path: Of the file, for errors.
    """
    from json.encoder import encode_basestring as quoted

    parts = []
    if metadata:
        pairs = ",".join(f"{quoted(k)}:{quoted(v)}" for k, v in metadata.items())
        parts.append(f'"{_METADATA}":{{{pairs}}}')
    if _METADATA in tensors:
        raise CheckpointError("the format keeps this name for itself: rename it", path, _METADATA)
    kinds: dict[Any, tuple[str, int]] = {}  # most tensors have the dtype and shape of others
    for key, kind in tensors.items():
        if kind not in kinds:
            dtype, shape = kind
            form = f'"dtype":"{dtype.code}","shape":[{",".join(map(str, shape))}]'
            kinds[kind] = form, math.prod(shape) * dtype.bits // 8
        form, size = kinds[kind]
        begin = begins[key]
        parts.append(f'{quoted(key)}:{{{form},"data_offsets":[{begin},{begin + size}]}}')
    try:
        text = f"{{{','.join(parts)}}}".encode()
    except UnicodeEncodeError as error:
        wrong = error.object[error.start]
        texts = [*((key, key) for key in tensors), *((k, k + v) for k, v in metadata.items())]
        raise CheckpointError(
            f"keys and metadata are written as UTF-8, which has no {wrong!a}",
            path,
            next((key for key, text in texts if wrong in text), None),
        ) from None
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise CheckpointError(
            f"the header would have {len(text)} bytes, and readers refuse more than "
            f"{LONGEST_HEADER}: write shards (max_shard_size)",
            path,
        )
    return len(text).to_bytes(8, "little") + text


# -- writing ---------------------------------------------------------------------------------------

#: What is handed to the operating system at once, between two steps of the progress.
_CHUNK = 1 << 26
_Tensors = Mapping[str, tuple[FileDtype, tuple[int, ...]]]


def write_safetensors(
    file: IO[bytes],
    path: str,
    tensors: _Tensors,
    metadata: Mapping[str, str],
    pieces: Callable[[Sequence[str]], Iterable[Any]],
    advance: Callable[[int], None],
) -> None:
    """Writes into an open file.

    Args:
        file: The file.
        path: Its path, for errors.
        tensors: dtype and shape by key. The header has them in this order.
        metadata: The text beside them.
        pieces: Gives the bytes of tensors one after the other.
        advance: Called with the number of bytes that were written.
    """
    begins, size = _arranged(tensors)
    file.write(header_bytes(tensors, begins, metadata, path))
    count = 0
    for piece in pieces(list(begins)):
        view = memoryview(piece)
        for start in range(0, len(view), _CHUNK):
            advance(file.write(view[start : start + _CHUNK]))
        count += len(view)
    if count != size:
        raise CheckpointError(f"{count} bytes came for {size} of its tensors", path)


def _arranged(tensors: _Tensors) -> tuple[dict[str, int], int]:
    """Where the values of each tensor begin, in that order, and where the last ones end: those with
    large elements first, so that each lies where its elements may lie in memory.
    """
    begins = {}
    at = 0
    for bits in sorted({dtype.bits for dtype, _ in tensors.values()}, reverse=True):
        for key, (dtype, shape) in tensors.items():
            if dtype.bits == bits:
                begins[key] = at
                at += math.prod(shape) * bits // 8
    return begins, at


# -- reading ---------------------------------------------------------------------------------------


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
        with closed_on_error(self):
            self._places: dict[str, Place]
            self._places, metadata, self._start = read_header(self._file, path, source.large_header)
            # Most files say nothing that shapes are needed for, and some have a million.
            shapes = self.shapes() if metadata.keys() - {"format"} else {}
            take_record(metadata, shapes, path).give_to(self)
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
