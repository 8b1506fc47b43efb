# SPDX-License-Identifier: BSD-3-Clause
"""Writing a safetensors file tensor by tensor, in the memory of one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from modtree.files.checkpoint.base import CheckpointError
from modtree.files.checkpoint.dtypes import FileDtype
from modtree.files.safetensors.header import header_bytes

__all__ = ["write_safetensors"]

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
