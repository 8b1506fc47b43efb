# SPDX-License-Identifier: BSD-3-Clause
"""Pickles of modtree.save(), and plain pickles. Tensors of torch in them are the leaves of a model
that were torch's: they are tensors of torch again where torch is installed and wanted.
"""

from __future__ import annotations

import importlib
import pickle
from typing import Any

from modtree.files.pickled.builder import Builder
from modtree.files.pickled.own_names import OwnNames
from modtree.files.pickled.plain import BUILDERS, MAKERS, NAMES, class_of_ml_dtypes
from modtree.files.pickled.tolerant import TolerantUnpickler
from modtree.files.pickled.unpickle import Unpickler
from modtree.files.torch.inline_storage import storage_in
from modtree.files.torch.names import TorchNames
from modtree.files.torch.storages import InlineStorages, StorageKind

__all__ = ["TrustingUnpickler", "unpickler_of_leaves"]

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
        """Is it one of torch's functions that take stand-ins?"""
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
