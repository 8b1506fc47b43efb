# SPDX-License-Identifier: BSD-3-Clause
"""The files of torch.save(): a zip archive with a pickle in it, and one record for the memory of
each storage.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from modtree.files.pickled.names import safe_unpickler
from modtree.files.torch.archive import open_archive
from modtree.files.torch.arrays import MAKERS, NAMES
from modtree.files.torch.storages import Storages

__all__ = ["load_archive"]


class _TrustingUnpickler(pickle.Unpickler):
    """For weights_only=False: torch's names become ours, and every other name is imported."""

    def __init__(self, file: Any, storages: Storages, options: Any) -> None:
        super().__init__(file, **options)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        known = NAMES.get((module, name))
        return super().find_class(module, name) if known is None else known

    def persistent_load(self, pid: Any) -> Any:
        return self._storages.load(pid)


def load_archive(file: Any, everything: bool, options: Any, mapped: bool = False) -> Any:
    """Reads a file of torch.save().

    Args:
        file: Open for reading bytes.
        everything: Whether its pickle may name and call anything.
        options: For the unpickler.
        mapped: Whether tensors are made over a private map of the file.

    Raises:
        UnpicklingError: The archive is damaged, or its pickle contains what is not allowed.
    """
    storages = Storages(open_archive(file, mapped))
    stream = io.BytesIO(storages.pickled)
    if everything:
        return _TrustingUnpickler(stream, storages, options).load()
    return safe_unpickler(stream, options, NAMES, MAKERS, storages.load).load()
