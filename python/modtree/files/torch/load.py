# SPDX-License-Identifier: BSD-3-Clause
"""Reading what is in a file of torch.save() or modtree.save(), and any pickle. Tensors of torch in
a pickle of modtree.save() are the leaves of a model that were torch's: they are tensors of torch
again where torch is installed and wanted.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from modtree.files.checkpoint import other_files
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.checkpoint.mapped import Window
from modtree.files.pickled.builder import Builder, OwnNames, RecordBuilder
from modtree.files.pickled.plain import BUILDERS, MAKERS, NAMES, class_of_ml_dtypes
from modtree.files.pickled.stand_in import TolerantUnpickler
from modtree.files.pickled.unpickle import Unpickler, UnpicklingError
from modtree.files.torch.archive import open_archive
from modtree.files.torch.names import TorchNames, torch_unpickler
from modtree.files.torch.old import HEAD, begins_old, find_storages, storage_in
from modtree.files.torch.records import ARRAY, TensorRecord, record_of_array, replaced
from modtree.files.torch.storages import InlineStorages, StorageKind, Storages

# -- pickles of modtree.save(), and plain pickles --------------------------------------------------

_WITH_TORCH = "modtree.files.torch.torch_builder"


class _Leaves:
    """What a pickle says of tensors of torch. Which builder makes them is decided when the first of
    their names is met.
    """

    def __init__(self, builder: Builder, storages: InlineStorages, torch: bool) -> None:
        self._builder = builder
        self._storages = storages
        self._torch = torch
        self._names: TorchNames | None = None

    def names(self) -> TorchNames:
        if self._names is None:
            builder = self._builder
            if self._torch:
                try:
                    builder = importlib.import_module(_WITH_TORCH).TorchBuilder(self._storages)
                except ImportError:
                    pass
            self._names = TorchNames(builder)
        return self._names

    def storage(self, data: Any) -> Any:
        """The bytes of a storage as torch pickles them."""
        return self._storages.add(*storage_in(data))

    def takes(self, function: Any) -> bool:
        """Whether it is one of torch's functions that take stand-ins."""
        return self._names is not None and function in self._names.take_stand_ins


class _Names(dict[Any, Any]):
    """The names of a pickle, and those of torch's tensors when they are looked for."""

    def __init__(self, known: dict[Any, Any], leaves: _Leaves) -> None:
        super().__init__(known)
        self._leaves = leaves

    def __missing__(self, key: tuple[str, str]) -> Any:
        if key == ("torch.storage", "_load_from_bytes"):
            return self._leaves.storage
        if key[0] == "ml_dtypes":
            return class_of_ml_dtypes(key[1])
        if key[0].partition(".")[0] != "torch":
            raise KeyError(key)
        found = self._leaves.names().names[key]
        if type(found) is StorageKind:  # for storages that are records of an archive
            raise KeyError(key)
        return found


class _Makers(dict[Any, Any]):
    """The functions of a pickle, and those of torch's tensors: a file that calls one has named it
    before.
    """

    def __init__(self, known: dict[Any, Any], leaves: _Leaves) -> None:
        super().__init__(known)
        self._leaves = leaves

    def copy(self) -> _Makers:
        return _Makers(dict(self), self._leaves)

    def __missing__(self, function: Any) -> Any:
        if function == self._leaves.storage:
            return function
        return self._leaves.names().makers[function]


class TrustingUnpickler(pickle.Unpickler):
    """For weights_only=False: as pickle reads, with the storages that torch pickles and cannot read
    itself.
    """

    def find_class(self, module: str, name: str) -> Any:
        known = _OF_TORCH.get((module, name))
        return super().find_class(module, name) if known is None else known


def _storage_of_torch(data: bytes) -> Any:
    torch = importlib.import_module("torch")
    try:
        return torch.storage._load_from_bytes(data)
    except AttributeError:  # of a storage without a dtype
        content = storage_in(data)[1]
        whole = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0)
        return whole.untyped_storage()


def _tensor_of_torch(storage: Any, *arguments: Any) -> Any:
    torch = importlib.import_module("torch")
    if type(storage) is torch.UntypedStorage:
        made = torch.storage.TypedStorage
        storage = made(wrap_storage=storage, dtype=torch.uint8, _internal=True)
    return torch._utils._rebuild_tensor_v3(storage, *arguments)


_OF_TORCH = {
    ("torch.storage", "_load_from_bytes"): _storage_of_torch,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_torch,
}


def unpickler_of_leaves(
    file: Any,
    options: dict[str, Any],
    builder: Builder,
    storages: InlineStorages,
    torch: bool,
    tolerant: bool,
) -> Unpickler:
    """An unpickler for a pickle of modtree.save().

    Args:
        file: Open for reading bytes.
        options: For the unpickler.
        builder: Makes the tensors.
        storages: Get what the pickle holds of storages of torch; the builder has them too.
        torch: Whether tensors of torch are to be torch's again, where it is installed.
        tolerant: Whether stand-ins are made of what is not allowed.
    """
    own, leaves = OwnNames(builder), _Leaves(builder, storages, torch)
    names = _Names({**NAMES, **own.names}, leaves)
    makers = _Makers({**MAKERS, **own.makers}, leaves)
    builders = {**BUILDERS, **own.builders}
    if tolerant:
        return TolerantUnpickler(file, names, makers, builders, takes=leaves.takes, **options)
    return Unpickler(file, names, makers, builders, **options)


# -- files -----------------------------------------------------------------------------------------


def form_of(head: bytes) -> str:
    """How torch's files are told apart by their first bytes: "archive", "old" or "pickle"."""
    if head.startswith(b"PK\x03\x04"):
        return "archive"
    return "old" if begins_old(head) else "pickle"


@contextlib.contextmanager
def _errors_of(file: Any) -> Iterator[None]:
    """A file that cannot be read and does not begin as one that can is not a damaged one."""
    start = file.tell()
    try:
        yield
    except UnpicklingError:
        file.seek(start)
        head = file.read(other_files.HEAD)
        if form_of(head) == "pickle" and not other_files.begins_as_pickle(head):
            error = UnpicklingError(other_files.unknown(head))
            raise other_files.not_damaged(error) from None
        raise


class Contents(NamedTuple):
    """What a file holds.

    Attributes:
        obj: The object, with records in the place of tensors.
        storages: What the records need.
        foreign: How many classes and functions it names that are not imported.
        form: "archive", "old" or "pickle".
        is_own: Whether it names something of modtree.
    """

    obj: Any
    storages: Any
    foreign: int
    form: str
    is_own: bool


def read_contents(file: Any, mapped: bool) -> Contents:
    """Reads everything but the values of tensors. Nothing of a file is executed or imported.

    Args:
        file: Open for reading bytes. It stays open as long as values are read.
        mapped: Whether an archive is mapped, which takes a file on a disk.

    Raises:
        UnpicklingError: The file is damaged.
    """
    with _errors_of(file):
        form, storages, unpickler = _opened(
            file, lambda _: RecordBuilder(), {}, mapped, False, True
        )
        obj = unpickler.load()
    if "numpy" in unpickler.packages:
        obj = replaced(obj, _record_of, {}, (np.ndarray,))
    return Contents(obj, storages, unpickler.foreign, form, "modtree" in unpickler.packages)


def _record_of(array: np.ndarray) -> Any:
    """The record of an array of numbers: whatever reads a file then has it as a tensor."""
    if array.dtype.name not in DTYPES:
        return array
    record = record_of_array(array.astype(array.dtype.newbyteorder("="), copy=False))
    record.kind = ARRAY
    return record


def count_tensors(file: Any, options: dict[str, Any]) -> int:
    """The number of tensors in a file, whatever else there is.

    Args:
        file: Open for reading bytes.
        options: For the unpickler.

    Raises:
        UnpicklingError: The file is damaged.
    """
    builder = _Counter()
    _opened(file, lambda _: builder, options, False, False, True)[2].load()
    return builder.count


class _Counter(RecordBuilder):
    """Makes records, and counts them."""

    count = 0

    def tensor(self, record: TensorRecord) -> TensorRecord:
        self.count += 1
        return record


def load_object(
    file: Any,
    builder: Callable[[Any], Builder],
    options: dict[str, Any],
    everything: bool = False,
    mapped: bool = False,
    tolerant: bool = False,
) -> Any:
    """Reads an object with its tensors.

    Args:
        file: Open for reading bytes.
        builder: From the storages of a file, what makes its tensors.
        options: For the unpickler.
        everything: Whether a file of torch may name and call anything.
        mapped: Whether tensors of an archive are made over a private map of the file.
        tolerant: Whether stand-ins are made of what is not allowed.

    Raises:
        UnpicklingError: The file is damaged, or contains what is not allowed.
    """
    with _errors_of(file):
        _, storages, unpickler = _opened(file, builder, options, mapped, everything, tolerant, True)
        result = unpickler.load()
    storages.finish()
    return result


def _opened(
    file: Any,
    builder: Callable[[Any], Builder],
    options: dict[str, Any],
    mapped: bool,
    everything: bool,
    tolerant: bool,
    torch: bool = False,
) -> tuple[str, Any, Any]:
    """The form of a file, its storages, and the unpickler of its object.

    Args:
        file: Open for reading bytes.
        builder: From the storages, what makes tensors.
        options: For the unpickler.
        mapped: Whether an archive is mapped.
        everything: Whether a file of torch may name and call anything.
        tolerant: Whether stand-ins are made of what is not allowed.
        torch: Whether tensors of torch in a pickle become torch's, and storages are read.
    """
    start = file.tell()
    form = form_of(file.read(HEAD))
    file.seek(start)
    storages: Any
    stream: Any
    if form == "pickle":
        if isinstance(file, Window):  # which takes longer to read a few bytes
            file = io.BytesIO(file.memory)
        storages = InlineStorages()
        made = builder(storages)
        return form, storages, unpickler_of_leaves(file, options, made, storages, torch, tolerant)
    if form == "archive":
        storages = Storages(open_archive(file, mapped), isinstance(file, Window))
        stream = io.BytesIO(storages.pickled)
    else:
        storages, stream = find_storages(file, options)
    if everything:
        return form, storages, _TorchUnpickler(stream, builder(storages), storages, options)
    storage = storages.load if torch else storages.storage
    return form, storages, torch_unpickler(stream, builder(storages), storage, options, tolerant)


class _TorchUnpickler(pickle.Unpickler):
    """For weights_only=False: torch's names become ours, and every other name is imported."""

    def __init__(self, file: Any, builder: Builder, storages: Any, options: Any) -> None:
        super().__init__(file, **options)
        self._names = TorchNames(builder).names
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        known = self._names.get((module, name))
        return super().find_class(module, name) if known is None else known

    def persistent_load(self, pid: Any) -> Any:
        return self._storages.load(pid)
