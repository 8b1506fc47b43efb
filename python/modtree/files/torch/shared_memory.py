# SPDX-License-Identifier: BSD-3-Clause
"""Which tensors of an object share memory, and which storages to write so that they still do."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import owner_of
from modtree.core.strides import contiguous, reach
from modtree.files.torch.sources import Source


class Piece:
    """A tensor that is to be written: where it lies in memory, in bytes, and what it looks like.

    Attributes:
        dtype: torch's name of the dtype.
        size: Its shape.
        stride: Elements from one index to the next, for each dimension; none is negative.
        start: The address of its first element.
        end: The address behind its last byte.
        owner: Whatever has the memory. Pieces of one owner share a storage.
        held: What keeps the memory where it is.
        location: torch's name of the device.
        path: Where in the object it stands, for errors.
    """

    __slots__ = (
        "dtype",
        "end",
        "held",
        "itemsize",
        "location",
        "owner",
        "path",
        "size",
        "start",
        "storage",
        "stride",
    )

    def __init__(self, dtype: str, itemsize: int, size: Any, stride: Any, path: str) -> None:
        self.dtype = dtype
        self.itemsize = itemsize
        self.size = tuple(size)
        self.stride = tuple(stride)
        self.path = path
        self.start = self.end = 0
        self.owner: Any = None
        self.held: Any = None
        self.location = "cpu"
        self.storage: Any = None  # storages_of() gives it

    def lies_at(self, start: int, owner: Any, held: Any) -> Piece:
        self.start = start
        self.end = start + reach(self.size, self.stride) * self.itemsize
        self.owner, self.held = owner, held
        return self

    @property
    def offset(self) -> int:
        """The first element, counted from the start of the storage."""
        return (self.start - self.storage.start) // self.itemsize


class Storage:
    """Memory that is written once.

    Attributes:
        dtype: The dtype of all pieces in it, or None where they differ.
        key: The name of its record; empty before the first piece of it is written.
    """

    def __init__(self, piece: Piece) -> None:
        self.start, self.end = piece.start, piece.end
        self.dtype: str | None = piece.dtype
        self.location = piece.location
        self.held = [piece.held]
        self.key = ""

    @property
    def nbytes(self) -> int:
        return self.end - self.start

    @property
    def source(self) -> Source | None:
        """What reads the values, where they are not in memory."""
        return self.held[0] if isinstance(self.held[0], Source) else None

    def add(self, start: int, end: int, dtype: str | None, held: list[Any]) -> None:
        self.start, self.end = min(self.start, start), max(self.end, end)
        self.dtype = self.dtype if self.dtype == dtype else None
        self.held += held

    def bytes(self) -> Any:
        """The memory, where it is."""
        if not self.nbytes:
            return b""
        array: Any = np.asarray(_Bytes(self.start, self.nbytes))
        return memoryview(array)


class _Bytes:
    """Memory by its address, for NumPy."""

    def __init__(self, address: int, count: int) -> None:
        self.__array_interface__ = {
            "data": (address, True),
            "shape": (count,),
            "typestr": "|u1",
            "version": 3,
        }


# -- pieces ----------------------------------------------------------------------------------------


def empty_piece(dtype: str, itemsize: int, size: Any, path: str) -> Piece:
    """Of a tensor without elements, or on meta: it has no memory."""
    return Piece(dtype, itemsize, size, contiguous(size), path)


def piece_of_array(array: np.ndarray, path: str) -> Piece:
    """An array where it lies; a contiguous copy of one whose strides torch cannot have."""
    if not array.size:
        return empty_piece(array.dtype.name, array.itemsize, array.shape, path)
    steps = [s for n, s in zip(array.shape, array.strides, strict=True) if n > 1]
    fits = all(s >= 0 and s % array.itemsize == 0 for s in steps) and array.flags.aligned
    if not fits or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    natural = contiguous(array.shape)
    strides = [
        s // array.itemsize if n > 1 else step
        for n, s, step in zip(array.shape, array.strides, natural, strict=True)
    ]
    piece = Piece(array.dtype.name, array.itemsize, array.shape, strides, path)
    address = array.__array_interface__["data"][0]
    return piece.lies_at(address, _owner_of(array), array)


def _owner_of(array: np.ndarray) -> Any:
    """Names whatever has the memory: an array, or a storage of torch."""
    base: Any = array
    while base is not None:
        if isinstance(base, np.ndarray):
            base = owner = owner_of(base)
        elif hasattr(base, "untyped_storage"):
            return "torch", base.untyped_storage().data_ptr()
        base = getattr(base, "base", None)  # as_strided puts an object of its own in between
    return id(owner)


def piece_of_torch(tensor: Any, moved: dict[Any, Any], path: str) -> Piece:
    """A strided tensor of torch where it lies.

    Args:
        tensor: The tensor. What torch notes of it (conjugated, negated) is carried out.
        moved: The storages of other devices that were copied to main memory before, by device and
            address; one that is missing is added.
        path: For errors.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    dtype, itemsize = str(tensor.dtype).rpartition(".")[2], tensor.element_size()
    if not tensor.numel():
        return empty_piece(dtype, itemsize, tensor.shape, path)
    piece = Piece(dtype, itemsize, tensor.shape, tensor.stride(), path)
    storage = tensor.untyped_storage()
    if tensor.device.type == "cpu":
        return piece.lies_at(tensor.data_ptr(), ("torch", storage.data_ptr()), tensor)
    piece.location = str(tensor.device)
    key = piece.location, storage.data_ptr()
    copied = moved.get(key)
    if copied is None:
        copied = moved[key] = storage.cpu()
    start = copied.data_ptr() + tensor.storage_offset() * itemsize
    return piece.lies_at(start, key, copied)


def piece_of_source(source: Source, dtype: Any, place: Any, address: int, path: str) -> Piece:
    """A tensor whose values are read when they are written.

    Args:
        source: Reads all values of its storage.
        dtype: Has a name and an itemsize.
        place: Offset, size and stride in the storage.
        address: What stands for that of the storage: behind all memory, and its own.
        path: For errors.
    """
    piece = Piece(dtype.name, dtype.itemsize, place.size, place.stride, path)
    return piece.lies_at(address + place.offset * dtype.itemsize, ("late", address), source)


# -- storages --------------------------------------------------------------------------------------


def storages_of(pieces: list[Piece]) -> None:
    """Gives each piece its storage: one for all pieces of an owner, from the first byte of them to
    the last, and one for owners whose pieces overlap.

    Raises:
        ValueError: Pieces of different dtypes share memory in a way that no file can say.
    """
    by_owner: dict[Any, Storage] = {}
    for piece in pieces:
        if piece.owner is None:
            piece.storage = Storage(piece)
            continue
        known = by_owner.get(piece.owner)
        if known is None:
            by_owner[piece.owner] = Storage(piece)
        else:
            known.add(piece.start, piece.end, piece.dtype, [piece.held])
    merged = _merged(by_owner)
    for piece in pieces:
        if piece.owner is not None:
            piece.storage = merged[piece.owner]
            if (piece.start - piece.storage.start) % piece.itemsize:
                raise ValueError(
                    f"{piece.path} shares memory with a tensor of another dtype, and does not "
                    f"begin at a multiple of its element size ({piece.itemsize} bytes) there: "
                    f"clone() one of them"
                )


def _merged(by_owner: dict[Any, Storage]) -> dict[Any, Storage]:
    merged: dict[Any, Storage] = {}
    last: Storage | None = None
    for owner, storage in sorted(by_owner.items(), key=lambda item: item[1].start):
        if last is not None and storage.start < last.end:
            last.add(storage.start, storage.end, storage.dtype, storage.held)
        else:
            last = storage
        merged[owner] = last
    return merged
