# SPDX-License-Identifier: BSD-3-Clause
"""What the readers share that leave the work to a library."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from modtree import _C
from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    Entry,
    shortened,
    tensor_of,
)
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.pickled.stand_in import StandIn

__all__ = ["LibraryArray", "LibraryCheckpoint", "library"]


class LibraryArray(NamedTuple):
    """An array: its shape, NumPy's name of its dtype, its file, and what reads it."""

    shape: tuple[int, ...]
    dtype: str
    file: str
    read: Callable[[], np.ndarray]


def library(name: str, what: str, path: str) -> Any:
    """A package that reads a file.

    Raises:
        CheckpointError: It is not installed. The message says how to go on.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        error = CheckpointError(
            f"it is {what}: the package {name} reads it (pip install {name}), and then modtree "
            f"shows and converts its arrays",
            path,
        )
        raise not_damaged(error) from None


class LibraryCheckpoint(Checkpoint):
    """A checkpoint whose arrays a library reads."""

    is_read_to_verify = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.metadata = {}
        self._arrays: dict[str, LibraryArray] = {}
        self._others: dict[str, StandIn] = {}
        self._others_at: dict[str, int] = {}
        self.values, self.places = self._others, self._others_at
        self._is_open = True

    def add(self, key: str, found: LibraryArray | StandIn) -> None:
        """Takes up an array, or what is said of something else.

        Raises:
            CheckpointError: There is one of this name.
        """
        if key in self._arrays or key in self._others:
            raise CheckpointError("two entries have this key", self.path, key)
        if isinstance(found, LibraryArray):
            known = found.dtype in _C._dtypes or found.dtype in _C._stored_dtypes
            if known:
                self._arrays[key] = found
                return
            found = described(f"array of {found.dtype} {list(found.shape)}")
        self._others_at[key] = len(self._arrays) + len(self._others)
        self._others[key] = found

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {
            key: Entry(key, shape, dtype, math.prod(shape) * _itemsize(dtype), file)
            for key, (shape, dtype, file, _) in self._arrays.items()
        }

    def tensor(self, key: str) -> Any:
        return tensor_of(self.array(key))

    def array(self, key: str) -> np.ndarray:
        if not self._is_open:
            raise ValueError(f"the checkpoint {self.path} is closed")
        shape, dtype, file, read = self._arrays[key]
        try:
            array = np.asarray(read())
        except (CheckpointError, MemoryError):
            raise
        except Exception as error:  # whatever a library says of a damaged file
            text = f"cannot be read: {type(error).__name__}: {shortened(str(error))}"
            raise CheckpointError(text, file, key) from None
        if array.shape != shape or array.dtype.name != dtype:
            raise CheckpointError(
                f"it is to be {dtype} {list(shape)}, and is {array.dtype.name} {list(array.shape)}",
                file,
                key,
            )
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        for key, entry in self.entries.items():
            try:
                self.array(key)
            except CheckpointError as error:
                yield error
            advance(entry.nbytes)

    def close(self) -> None:
        self._is_open = False


def described(text: str) -> StandIn:
    """Something that is not an array of numbers, in words."""
    return StandIn("numpy.ndarray", ()).described("numpy.ndarray", text, {})


def _itemsize(dtype: str) -> int:
    known = _C._dtypes.get(dtype) or _C._stored_dtypes[dtype]
    return int(known.itemsize)
