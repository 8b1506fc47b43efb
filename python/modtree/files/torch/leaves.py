# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of torch in files of modtree.save(): the leaves of a model that were torch's. They are
tensors of torch again where torch is installed, and modtree's elsewhere.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from modtree.files.pickled.names import BUILDERS, MAKERS, NAMES
from modtree.files.pickled.unpickle import Unpickler
from modtree.files.torch import arrays as torch_names
from modtree.files.torch.leaf_storage import storage_in
from modtree.files.torch.storages import StorageKind, memory_of

__all__ = ["load_pickle"]


def _memory_in(data: Any) -> Any:
    kind, numbers = storage_in(data)
    return memory_of(numbers, kind)


_OWN_NAMES = {
    **{n: value for n, value in torch_names.NAMES.items() if type(value) is not StorageKind},
    ("torch.storage", "_load_from_bytes"): _memory_in,
}
_WITH_TORCH = "modtree.files.torch.torch_builder"


@functools.cache
def _torch_names() -> dict[Any, Any]:
    try:
        return importlib.import_module(_WITH_TORCH).NAMES
    except ImportError:
        return _OWN_NAMES


class _Names(dict[Any, Any]):
    """Looks for torch when the first name of a tensor of torch is met."""

    def __missing__(self, key: tuple[str, str]) -> Any:
        if key not in _OWN_NAMES:
            raise KeyError(key)
        return _torch_names()[key]


class _Makers(dict[Any, Any]):
    """The functions behind torch's names: a file that calls one has named it before."""

    def __missing__(self, function: Any) -> Any:
        if getattr(function, "__module__", None) != _WITH_TORCH:
            raise KeyError(function)
        return importlib.import_module(_WITH_TORCH).MAKERS[function]


def load_pickle(file: Any, options: dict[str, Any], torch: bool = True) -> Any:
    """Reads a pickle of modtree.save().

    Args:
        file: Open for reading bytes.
        options: For the unpickler.
        torch: Whether tensors of torch are to be torch's again, where it is installed.

    Raises:
        UnpicklingError: The file is damaged, or contains what is not allowed.
    """
    makers = _Makers({**MAKERS, **torch_names.MAKERS, _memory_in: _memory_in})
    names = _Names(NAMES) if torch else {**NAMES, **_OWN_NAMES}
    return Unpickler(file, names, makers, BUILDERS, **options).load()
