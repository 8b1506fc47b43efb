# SPDX-License-Identifier: BSD-3-Clause
"""Reading the state dict in a file of torch.save() or modtree.save()."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from modtree import _C
from modtree.files.checkpoint.base import Checkpoint, CheckpointError, Entry
from modtree.files.checkpoint.mapped import open_regular
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.torch.contents import find_state, flat_state, shared_entries
from modtree.files.torch.leaves import load_pickle
from modtree.files.torch.old import HEAD, begins_old, read_old_records
from modtree.files.torch.records import TensorRecord, read_records, resolved

__all__ = ["TorchCheckpoint"]

#: More bytes than that are not made of an expanded tensor.
_LARGE = 1 << 30


class TorchCheckpoint(Checkpoint):
    """A file that torch.save() or modtree.save() wrote. Nothing in it is executed; the tensors of
    an archive lie in a private map of the file, those of a pickle are read.

    Attributes:
        found_under: The key under which the state dict stands in the file; "" where the file holds
            nothing else.
        left_out: The other keys beside it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.metadata = {}
        self._lock = threading.Lock()
        self._storages: Any = None
        self._file: Any = open_regular(path)
        try:
            with self._errors():
                obj = self._read()
            self._enter(obj)
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> Any:
        head = self._file.read(HEAD)
        self._file.seek(0)
        is_archive = head.startswith(b"PK\x03\x04")
        self.format = "torch" if is_archive or begins_old(head) else "modtree"
        if self.format == "torch":
            read = read_records if is_archive else read_old_records
            obj, self._storages = read(self._file)
            return obj
        return load_pickle(self._file, {}, torch=False)

    def _enter(self, obj: Any) -> None:
        state, self.found_under = find_state(obj, _is_tensor, self.path)
        self.left_out = (
            tuple(key for key in obj if key != self.found_under) if state is not obj else ()
        )
        flat, self.versions = flat_state(state, _is_tensor, self.path)
        tensors = {key: value for key, value in flat.items() if _is_tensor(value)}
        self._others = {key: value for key, value in flat.items() if key not in tensors}
        self.ties, self.views = _shared(tensors)
        late = {*self.ties, *self.views}
        self._tensors = {key: value for key, value in tensors.items() if key not in late}
        late.update(self._others)
        self.places = {key: place for place, key in enumerate(flat) if key in late}

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {
            key: Entry(key, _shape(value), value.dtype.name, value.nbytes, self.path)
            for key, value in self._tensors.items()
        }

    @functools.cached_property
    def values(self) -> Mapping[str, Any]:  # type: ignore[override]
        if self.format == "modtree":
            return self._others
        with self._lock, self._errors():
            self._check_open()
            done: dict[int, Any] = {}
            return {k: resolved(value, self._storages, done) for k, value in self._others.items()}

    def tensor(self, key: str) -> Any:
        value = self._tensors[key]
        if type(value) is not TensorRecord:
            return value
        with self._lock, self._errors(key):
            self._check_open()
            return value.tensor(self._storages)

    def array(self, key: str) -> np.ndarray:
        tensor = self.tensor(key)
        if tensor.is_meta:
            raise CheckpointError("it is on meta: the file has no values", self.path, key)
        return tensor._array_view

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        value = self._tensors[key]
        if type(value) is not TensorRecord:
            yield from super().chunks(key, size)
        elif value.is_plain:
            with self._errors(key):
                self._check_open()
                yield from value.pieces(self._storages, size)
        elif value.nbytes > max(_LARGE, value.reach * value.dtype.itemsize):
            raise CheckpointError(
                f"its {math.prod(value.place.size)} elements are {value.reach} in the file, which "
                f"an expanded tensor repeats: load it, and save what it was expanded from",
                self.path,
                key,
            )
        else:
            yield from super().chunks(key, size)

    def _check_open(self) -> None:
        if self._file.closed:
            raise ValueError(f"the checkpoint {self.path} is closed")

    @contextlib.contextmanager
    def _errors(self, key: str | None = None) -> Iterator[None]:
        """What is wrong with a file, as an error of checkpoints."""
        try:
            yield
        except UnpicklingError as error:
            raise CheckpointError(str(error), self.path, key) from None
        except RecursionError:
            raise CheckpointError("containers are nested too deeply", self.path, key) from None

    def compare_checksums(self) -> None:
        if self._storages is not None:
            self._storages.compare_checksums()

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        if self._storages is None:
            return
        first: dict[str, str] = {}
        for key, value in self._tensors.items():
            if type(value) is TensorRecord and value.storage is not None:
                first.setdefault(value.storage.key, key)
        for storage, count, reason in self._storages.damages():
            advance(count)
            if reason:
                yield CheckpointError(reason, self.path, storage and first.get(storage))
        self.let_go()

    def let_go(self) -> None:
        if self._storages is not None:
            self._storages.let_go()

    def close(self) -> None:
        self._file.close()
        self._storages = None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (TensorRecord, _C.TensorBase))


def _shape(value: Any) -> tuple[int, ...]:
    return value.place.size if type(value) is TensorRecord else tuple(value.shape)


def _shared(tensors: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    records = {k: value for k, value in tensors.items() if type(value) is TensorRecord}
    if records or not tensors:
        return shared_entries(records)
    first: dict[int, str] = {}  # in a pickle, an object that stands at several places
    kept = {key: first.setdefault(id(value), key) for key, value in tensors.items()}
    return {key: other for key, other in kept.items() if key != other}, {}
