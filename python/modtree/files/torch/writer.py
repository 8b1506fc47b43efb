# SPDX-License-Identifier: BSD-3-Clause
"""Files that torch.load() reads, written without torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import bytes_of
from modtree.files.checkpoint.dtypes import array_dtype
from modtree.files.torch.archive_writer import ArchiveWriter
from modtree.files.torch.pickler import TorchPickler

__all__ = ["prepared"]

_PIECE = 1 << 24  # bytes that are read at once, of what is not in memory


class _Prepared:
    """An object that can be said in torch's form, ready to be written."""

    def __init__(self, obj: Any) -> None:
        pickler = TorchPickler()
        self._pickled = pickler.dump(obj)
        self._storages = pickler.storages

    def write(self, file: Any) -> None:
        """Writes the archive at the place where the file stands."""
        archive = ArchiveWriter(file)
        archive.add("archive/data.pkl", self._pickled)
        archive.add("archive/byteorder", sys.byteorder.encode())
        for storage in self._storages:
            name, source = f"archive/data/{storage.key}", storage.source
            if source is None:
                archive.add(name, storage.bytes())
            elif sys.byteorder == "big":  # in which the rest of the archive is
                values = np.frombuffer(
                    b"".join(source.pieces(_PIECE)), array_dtype(str(storage.dtype))
                )
                archive.add(name, bytes_of(values.byteswap()))
            else:
                archive.add_pieces(name, storage.nbytes, source.pieces(_PIECE))
        archive.add("archive/version", b"3\n")
        archive.close()


def prepared(obj: Any) -> _Prepared:
    """What is wrong with an object shows here, before a file is touched.

    Raises:
        TypeError, ValueError, RecursionError: It cannot be said in torch's form.
    """
    return _Prepared(obj)
