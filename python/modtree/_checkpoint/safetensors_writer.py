# SPDX-License-Identifier: BSD-3-Clause
"""Writing a safetensors file tensor by tensor, in the memory of one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

from modtree._checkpoint.base import CheckpointError
from modtree._checkpoint.dtypes import FileDtype
from modtree._checkpoint.safetensors_header import Place, header_bytes

__all__ = ["write_safetensors"]

#: What is handed to the operating system at once, between two steps of the progress.
_CHUNK = 1 << 26


def write_safetensors(
    file: IO[bytes],
    path: str,
    tensors: Mapping[str, tuple[FileDtype, tuple[int, ...]]],
    metadata: Mapping[str, str],
    data: Callable[[str], Iterable[Any]],
    advance: Callable[[int], None],
) -> None:
    """Writes into an open file.

    Args:
        file: The file.
        path: Its path, for errors.
        tensors: dtype and shape by key. The header has them in this order.
        metadata: The text beside them.
        data: Gives the bytes of a tensor, in pieces.
        advance: Called with the number of bytes that were written.
    """
    places = _arranged(tensors)
    header = header_bytes(((key, places[key]) for key in tensors), metadata, path)
    file.write(header)
    for key, place in places.items():
        count = 0
        for piece in data(key):
            view = memoryview(piece)
            for start in range(0, len(view), _CHUNK):
                advance(file.write(view[start : start + _CHUNK]))
            count += len(view)
        if count != place.end - place.begin:
            raise CheckpointError(
                f"{count} bytes came for {place.end - place.begin} of it", path, key
            )


def _arranged(tensors: Mapping[str, tuple[FileDtype, tuple[int, ...]]]) -> dict[str, Place]:
    """Where the values of each tensor go, in that order: those with large elements first, so that
    each lies where its elements may lie in memory.
    """
    places = {}
    at = 0
    for key in sorted(tensors, key=lambda key: -tensors[key][0].bits):
        dtype, shape = tensors[key]
        size = math.prod(shape) * dtype.bits // 8
        places[key] = Place(dtype, shape, at, at + size)
        at += size
    return places
