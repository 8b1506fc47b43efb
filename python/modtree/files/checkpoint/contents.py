# SPDX-License-Identifier: BSD-3-Clause
"""What is written into the files of a checkpoint, and in which format."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from modtree.files.checkpoint.dtypes import FileDtype
from modtree.files.safetensors.writer import write_safetensors

__all__ = ["FORMAT", "Contents", "SafetensorsContents"]

#: What other programs look for in the metadata: in whose layout tensors are written.
FORMAT = {"format": "pt"}


class Contents(abc.ABC):
    """The tensors of a checkpoint.

    Attributes:
        sizes: The bytes of each tensor by key, in the order of the state dict.
        metadata: Text that stands beside them, the record of ties, values and versions too.
    """

    sizes: Mapping[str, int]
    metadata: Mapping[str, str]

    @abc.abstractmethod
    def write(
        self,
        file: IO[bytes],
        path: str,
        keys: Sequence[str],
        metadata: Mapping[str, str],
        advance: Callable[[int], None],
    ) -> None:
        """Writes some of the tensors into an open file.

        Args:
            file: The file.
            path: Its path, for errors.
            keys: Those of the tensors.
            metadata: What stands beside them in this file.
            advance: Called with the number of bytes that were written.
        """

    def names(self, keys: Sequence[str]) -> Sequence[str]:
        """All keys that are read from a file with these."""
        return keys


class SafetensorsContents(Contents):
    """Tensors for safetensors files.

    Args:
        tensors: dtype and shape by key.
        pieces: Gives the bytes of tensors one after the other, in pieces.
        metadata: The text beside them.
    """

    def __init__(
        self,
        tensors: Mapping[str, tuple[FileDtype, tuple[int, ...]]],
        pieces: Callable[[Sequence[str]], Iterable[Any]],
        metadata: Mapping[str, str],
    ) -> None:
        self.sizes = {
            key: math.prod(shape) * dtype.bits // 8 for key, (dtype, shape) in tensors.items()
        }
        self.metadata = metadata
        self._tensors = tensors
        self._pieces = pieces

    def write(
        self,
        file: IO[bytes],
        path: str,
        keys: Sequence[str],
        metadata: Mapping[str, str],
        advance: Callable[[int], None],
    ) -> None:
        tensors = {key: self._tensors[key] for key in keys}
        write_safetensors(file, path, tensors, metadata, self._pieces, advance)
