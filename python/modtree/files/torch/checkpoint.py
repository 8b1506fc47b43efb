# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints that are an object with records in the place of tensors, as in a file of torch.save()
or modtree.save(): the state dict in the object, and its other parts.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from modtree import _imports
from modtree.files.checkpoint.base import (
    Checkpoint,
    CheckpointError,
    Entry,
    checkpoint_error,
    closed_on_error,
)
from modtree.files.checkpoint.other_files import not_damaged
from modtree.files.pickled.stand_in import StandIn
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.sources.source import Source as FileSource
from modtree.files.torch.contents import Holders, flat_state, shared_entries, tensors_in
from modtree.files.torch.load import read_contents
from modtree.files.torch.parts import (
    Found,
    Part,
    find_state,
    names_beside,
    part_at,
    part_names,
    parts_of,
    values_of,
    without_training,
)
from modtree.files.torch.records import TensorRecord, replaced
from modtree.files.torch.sources import Source

#: More bytes than that are not made of an expanded tensor.
_LARGE = 1 << 30


class ObjectCheckpoint(Checkpoint):
    """A checkpoint with an object in it.

    Args:
        path: What was opened.

    Attributes:
        found_under: The key under which the state dict stands in the object; "" where the object is
            nothing else.
        left_out: The other keys beside it.
        foreign: How many classes and functions are named that are not imported.
    """

    is_read_to_verify = True
    _storages: Any = None  # of records that do not know themselves where their values are
    _object: Any = None
    _is_open = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.metadata = {}
        self._lock = threading.Lock()

    def _enter(self, at: str | None) -> None:
        obj = self._object
        holders = Holders(obj)
        found = Found(part_at(obj, at, self.path), at) if at else find_state(obj, holders)
        state, self.found_under, self.choices = found
        self.left_out: tuple[str, ...] = tuple(names_beside(obj, self.found_under))
        if self.choices:
            self.left_out, state = tuple(part_names(obj)), {}
        elif state is obj and isinstance(obj, dict):
            beside, state = without_training(obj, holders)
            self.left_out = tuple(beside)
        if not isinstance(state, dict) and state not in holders:
            if not at:
                call = 'load(path, foreign="stand-in")' if self.foreign else "load()"
                error = CheckpointError(
                    f"it holds {_article(state)} where a state dict belongs; modtree.{call} reads "
                    f"it",
                    self.path,
                )
                raise not_damaged(error)
            state = values_of(at, state)
        is_dict = isinstance(state, dict) and not at
        flat = flat_state(state, self.path, holders, self._names_in_code, not is_dict)
        self.versions, self.in_parts = flat.versions, flat.in_parts
        tensors = {k: value for k, value in flat.entries.items() if type(value) is TensorRecord}
        self._raw_values = {k: value for k, value in flat.entries.items() if k not in tensors}
        self.ties, self.views = shared_entries(tensors)
        late = {*self.ties, *self.views}
        self._tensors = {key: value for key, value in tensors.items() if key not in late}
        late.update(self._raw_values)
        self.places = {key: place for place, key in enumerate(flat.entries) if key in late}

    def _names_in_code(self, kind: str) -> frozenset[str] | None:
        """The parameters and buffers of a class of TorchScript; None where no code lists them."""
        return None

    @functools.cached_property
    def entries(self) -> dict[str, Entry]:  # type: ignore[override]
        return {
            key: Entry(key, record.shape, record.dtype.name, record.nbytes, *self._files(record))
            for key, record in self._tensors.items()
        }

    def _files(self, record: TensorRecord) -> tuple[str, tuple[str, ...]]:
        """The file that holds a tensor, and all of them where they are several."""
        files = record.source.files if isinstance(record.source, Source) else ()
        return (files[0] if files else self.path), (files if len(files) > 1 else ())

    @functools.cached_property
    def values(self) -> Mapping[str, Any]:  # type: ignore[override]
        with self._lock, self._errors():
            self._check_open()
            return self._with_tensors(self.raw_values)

    @property
    def raw_values(self) -> Mapping[str, Any]:
        return self._raw_values

    def parts(self) -> list[Part]:
        """What the file holds: the model, an optimizer, numbers, and so on."""
        self._check_open()
        return parts_of(self._object, self._one_value)

    def storage_sizes(self) -> tuple[int, int]:
        stored: dict[str, int] = {}
        used: Counter[str] = Counter()
        for record in tensors_in(self._object):
            if record.storage is not None:
                key = record.storage.key
                stored[key] = record.storage.length * record.storage.kind.stored.itemsize
                used[key] += record.reach * record.dtype.itemsize
        return sum(stored.values()), sum(min(size, used[key]) for key, size in stored.items())

    def _one_value(self, record: TensorRecord) -> Any:
        try:
            return self.array_of(record, "step").item()
        except CheckpointError:  # which whoever reads it is told
            return None

    def _with_tensors(self, value: Any) -> Any:
        found = [False]

        def note(record: Any) -> Any:
            found[0] = True
            return record

        replaced(value, note, {})
        if not found[0]:
            return value
        _imports.need_numpy_side()
        return _tensors_module().with_tensors(value, self._storages)

    def tensor(self, key: str) -> Any:
        record = self._tensors[key]
        with self._lock, self._errors(key):
            self._check_open()
            return self._with_tensors(record) if record.attributes else self._builder.tensor(record)

    @functools.cached_property
    def _builder(self) -> Any:
        _imports.need_numpy_side()
        return _tensors_module().TensorBuilder(self._storages)

    def array(self, key: str) -> np.ndarray:
        return self.array_of(self._tensors[key], key)

    def array_of(self, record: TensorRecord, key: str) -> np.ndarray:
        """The values of a record that stands in a value.

        Args:
            record: The record.
            key: What errors call it.
        """
        with self._lock, self._errors(key):
            self._check_open()
            return record.array(self._storages)

    def part(self, key: str, index: Any) -> np.ndarray:
        source = self._tensors[key].source
        if not isinstance(source, Source):
            return super().part(key, index)
        with self._lock, self._errors(key):
            self._check_open()
            return source.part(index)

    def contents(self) -> Any:
        with self._lock, self._errors():
            self._check_open()
            return self._with_tensors(self._object)

    def leaf(self, key: str) -> TensorRecord:
        record = self._tensors[key]
        if not record.attributes:
            return record
        made = copy.copy(record)
        made.attributes = self._with_arrays(record.attributes)
        return made

    def plain_values(self) -> Mapping[str, Any]:
        values: Mapping[str, Any] = self._with_arrays(self.raw_values)
        return values

    def _with_arrays(self, value: Any) -> Any:
        """A value whose tensors have their values."""

        def read(record: Any) -> Any:
            if type(record) is not TensorRecord or record.source is None:
                return record
            return record.with_source(record.array(self._storages))

        with self._lock, self._errors():
            self._check_open()
            return replaced(value, read, {})

    def chunks(self, key: str, size: int = 1 << 24) -> Iterator[memoryview]:
        record = self._tensors[key]
        if record.is_plain:
            with self._errors(key):
                self._check_open()
                yield from record.pieces(self._storages, size)
        elif record.nbytes > max(_LARGE, record.reach * record.dtype.itemsize):
            raise CheckpointError(
                f"its {math.prod(record.shape)} elements are {record.reach} in the file, which "
                f"an expanded tensor repeats: load it, and save what it was expanded from",
                self.path,
                key,
            )
        else:
            yield from super().chunks(key, size)

    def _check_open(self) -> None:
        if not self._is_open:
            raise ValueError(f"the checkpoint {self.path} is closed")

    @contextlib.contextmanager
    def _errors(self, key: str | None = None) -> Iterator[None]:
        """What is wrong with a file, as an error of checkpoints."""
        try:
            yield
        except UnpicklingError as error:
            raise checkpoint_error(error, self.path, key) from None
        except RecursionError:
            raise CheckpointError("containers are nested too deeply", self.path, key) from None

    def close(self) -> None:
        self._is_open = False
        self._object = self._storages = None
        vars(self).pop("_builder", None)


def _tensors_module() -> Any:
    return importlib.import_module("modtree.files.pickled.tensors")


def _article(obj: Any) -> str:
    if type(obj) is StandIn:
        return repr(obj)
    kind = type(obj).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


# -- files of torch --------------------------------------------------------------------------------

_NAMES_IN_CODE = re.compile(r"^  __(?:parameters|buffers)__ = \[(.*)\]$", re.MULTILINE)
_CLASS_IN_CODE = re.compile(r"^class (\w+)\(Module\):$", re.MULTILINE)


class TorchCheckpoint(ObjectCheckpoint):
    """A file that torch.save(), torch.jit.save() or modtree.save() wrote, or another pickle.
    Nothing in it is executed; the tensors of an archive lie in a private map of the file, those of
    a pickle are read, and so are all of a file that is not on this machine.

    Args:
        source: The file.
        at: The part to read, such as "ema" or "optimizer.state"; None for the model.
    """

    def __init__(self, source: FileSource, at: str | None = None) -> None:
        super().__init__(source.name)
        self._file: Any = source.open()
        with closed_on_error(self):
            with self._errors():
                contents = read_contents(self._file, source.can_be_mapped)
            self._object, self._storages = contents.obj, contents.storages
            self.foreign = contents.foreign
            self.format = "torch"
            if contents.form == "pickle":
                self.format = "modtree" if contents.is_own else "pickle"
            elif type(contents.obj) is StandIn and contents.obj.is_script:
                self.format = "torchscript"
            self._enter(at)

    def _names_in_code(self, kind: str) -> frozenset[str] | None:
        """The parameters and buffers of a class of TorchScript, as its code lists them."""
        home, _, name = kind.rpartition(".")
        if home not in self._code:
            with self._errors():
                self._code[home] = _names_by_class(self._storages.code(home.replace(".", "/")))
        return self._code[home].get(name)

    @functools.cached_property
    def _code(self) -> dict[str, dict[str, frozenset[str]]]:
        return {}

    def compare_checksums(self) -> None:
        self._check_open()
        self._storages.compare_checksums()

    def damages(self, advance: Callable[[int], Any]) -> Iterator[CheckpointError]:
        self._check_open()
        first: dict[str, str] = {}
        for key, record in self._tensors.items():
            if record.storage is not None:
                first.setdefault(record.storage.key, key)
        for storage, count, reason in self._storages.damages():
            advance(count)
            if reason:
                yield CheckpointError(reason, self.path, storage and first.get(storage))
        self.let_go()

    def maps(self) -> dict[str, Any]:
        file_map = None if self._storages is None else self._storages.file_map
        return {} if file_map is None else {self.path: file_map}

    def let_go(self) -> None:
        if self._is_open:
            self._storages.let_go()

    def close(self) -> None:
        self._file.close()
        super().close()


def _names_by_class(code: str) -> dict[str, frozenset[str]]:
    """The parameters and buffers of each class in a module of TorchScript."""
    found = list(_CLASS_IN_CODE.finditer(code))
    ends = [*(match.start() for match in found[1:]), len(code)]
    names = {}
    for match, end in zip(found, ends, strict=False):
        lists = ",".join(_NAMES_IN_CODE.findall(code[match.end() : end]))
        names[match[1]] = frozenset(part.strip(" \"'") for part in lists.split(",")) - {""}
    return names
